"""HTTP tasks: one request, signed if it has a secret, to an address that may be reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from rota.domain.work import ErrorType
from rota.outbound.caller import REDIRECTS, Caller, Reply, explain_failure, is_expected, show_url
from rota.outbound.replies import read_body, read_retry_after
from rota.outbound.signing import sign
from rota.worker.attempt import Attempt, cancel_task, run_as_task
from rota.worker.options import MAX_OUTPUT_BYTES, WorkerOptions

log = structlog.get_logger(__name__)

LOGGED_BODY_BYTES = 16 * 1024


class HttpExecutor:
    """One pool of connections for all tasks of the worker."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._caller = Caller(options.http_allow, options.http_max_response_bytes)

    async def open(self) -> None:
        await self._caller.open()

    async def close(self) -> None:
        await self._caller.close()

    def start(self, attempt: Attempt) -> None:
        run_as_task(attempt, self._run(attempt))

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        cancel_task(attempt)

    async def _run(self, attempt: Attempt) -> None:
        http = attempt.assignment.spec.get("http") or {}
        try:
            began_at = time.monotonic()
            async with asyncio.timeout(self._limit_seconds(attempt)):
                reply = await self._call(attempt, http)
            line = f"{http.get('method', 'GET')} {show_url(http['url'])} -> {reply.status} {reply.reason}"
            milliseconds = (time.monotonic() - began_at) * 1000
            attempt.log.write_line(f"{line}, {len(reply.body)} bytes in {milliseconds:.0f} ms")
            judge(attempt, http, reply)
        except Exception as error:
            error_type, sentence = explain_failure(error)
            if error_type is ErrorType.EXCEPTION:
                log.exception("http_task_failed", task_run_id=attempt.key.task_run_id)
            attempt.log.write_line(f"{http.get('method', 'GET')} {show_url(http.get('url', ''))}: {sentence}")
            attempt.fail(error_type, sentence)

    def _limit_seconds(self, attempt: Attempt) -> float | None:
        """The attempt's own timeout is the worker's to watch; without one a request does not wait for ever."""
        return None if attempt.assignment.timeout_seconds else self._options.http_timeout_seconds

    async def _call(self, attempt: Attempt, http: Mapping[str, Any]) -> Reply:
        body = encode_body(http)
        return await self._caller.call(
            str(http.get("method") or "GET").upper(),
            str(http["url"]),
            build_headers(attempt, http, body),
            body,
            follows=bool(http.get("follow_redirects")),
        )


def encode_body(http: Mapping[str, Any]) -> bytes | None:
    if "payload" in http:
        return msgspec.json.encode(http["payload"])
    body = http.get("body")
    return None if body is None else str(body).encode()


def build_headers(attempt: Attempt, http: Mapping[str, Any], body: bytes | None) -> dict[str, str]:
    """The task's own headers, and those by which the receiver recognises tries of one and the same task."""
    assignment = attempt.assignment
    headers = {str(name): str(value) for name, value in (http.get("headers") or {}).items()}
    given = {name.lower() for name in headers}
    defaults = {"Idempotency-Key": assignment.idempotency_key, "X-Rota-Attempt": str(assignment.attempt)}
    if assignment.traceparent:
        defaults["traceparent"] = assignment.traceparent
    if "payload" in http:
        defaults["Content-Type"] = "application/json"
    elif body is not None:
        defaults["Content-Type"] = "text/plain; charset=utf-8"
    headers |= {name: value for name, value in defaults.items() if name.lower() not in given}
    if http.get("secret"):
        # The identifier stays the same over all tries, so that the receiver can tell a repetition.
        headers |= sign(
            str(http["secret"]),
            message_id=assignment.idempotency_key,
            timestamp=int(time.time()),
            body=body or b"",
        )
    return headers


def judge(attempt: Attempt, http: Mapping[str, Any], reply: Reply) -> None:
    """Decides whether the reply is a success, and what the output is."""
    if not is_expected(reply.status, http.get("expect") or ("2xx",)):
        attempt.log.write(reply.body[:LOGGED_BODY_BYTES])
        hint = ""
        if reply.status in REDIRECTS:
            hint = f"; redirects are not followed (to {reply.headers.get('Location', '?')})"
        attempt.fail(
            ErrorType.HTTP_ERROR,
            f"status {reply.status} {reply.reason}{hint}",
            http_status=reply.status,
            retry_after_seconds=read_retry_after(reply.headers.get("Retry-After"), time.time()),
        )
        return
    form = attempt.assignment.spec.get("output", "json")
    try:
        output = read_body(form, reply, MAX_OUTPUT_BYTES)
    except ValueError as error:
        attempt.fail(ErrorType.BAD_OUTPUT, str(error), http_status=reply.status)
    else:
        attempt.succeed(output, http_status=reply.status)
