"""HTTP tasks: one request, signed if it has a secret, to an address that may be reached."""

from __future__ import annotations

import asyncio
import email.utils
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
import structlog
from yarl import URL

from rota import __version__
from rota.domain.work import ErrorType
from rota.worker.addresses import AddressPolicy, ForbiddenAddressError, GuardedResolver
from rota.worker.attempt import Attempt, cancel_task, run_as_task
from rota.worker.options import MAX_OUTPUT_BYTES, WorkerOptions
from rota.worker.output import describe_size
from rota.worker.signing import sign

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0
MAX_REDIRECTS = 5
MAX_RETRY_AFTER_SECONDS = 7 * 86_400.0
LOGGED_BODY_BYTES = 16 * 1024
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Never sent on to another origin.
CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


class Reply:
    """What came back."""

    __slots__ = ("body", "content_type", "headers", "is_cut", "reason", "status")

    def __init__(self, response: aiohttp.ClientResponse, body: bytes, *, is_cut: bool) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type
        self.body = body
        self.is_cut = is_cut


class HttpExecutor:
    """One pool of connections for all tasks of the worker."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._policy = AddressPolicy(options.http_allow)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(
            limit=0, resolver=GuardedResolver(self._policy), ttl_dns_cache=10, keepalive_timeout=30
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"rota/{__version__}"},
            # Proxies and credentials of the worker's own environment are not the task's.
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

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
        """Sends the request, and follows redirects only if the task says so: each hop is checked anew."""
        if self._session is None:
            raise RuntimeError("the HTTP executor is not open")
        url = URL(str(http["url"]))
        method = str(http.get("method") or "GET").upper()
        body = encode_body(http)
        headers = build_headers(attempt, http, body)
        for _ in range(MAX_REDIRECTS + 1):
            if url.scheme not in ("http", "https") or not url.host:
                raise aiohttp.InvalidURL(url, "expected http:// or https:// and a host")
            self._policy.check_literal(url.host)
            reply = await self._send(method, url, headers, body)
            target = reply.headers.get("Location")
            if not (http.get("follow_redirects") and reply.status in REDIRECTS and target):
                return reply
            following = url.join(URL(target))
            if following.origin() != url.origin():
                headers = {name: value for name, value in headers.items() if name.lower() not in CREDENTIALS}
            if reply.status == 303 or (reply.status in (301, 302) and method == "POST"):
                method, body = "GET", None
            url = following
        raise aiohttp.ClientError(f"more than {MAX_REDIRECTS} redirects")

    async def _send(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> Reply:
        if self._session is None:
            raise RuntimeError("the HTTP executor is not open")
        limit = self._options.http_max_response_bytes
        async with self._session.request(
            method,
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        ) as response:
            content = bytearray()
            # Counted after decompression: a small body that unpacks to a huge one is cut at the same place.
            async for part in response.content.iter_any():
                content += part
                if len(content) > limit:
                    response.close()
                    return Reply(response, bytes(content[:limit]), is_cut=True)
            return Reply(response, bytes(content), is_cut=False)


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
        output = read_body(form, reply)
    except ValueError as error:
        attempt.fail(ErrorType.BAD_OUTPUT, str(error), http_status=reply.status)
    else:
        attempt.succeed(output, http_status=reply.status)


def is_expected(status: int, expected: Sequence[int | str]) -> bool:
    """Whether the status is one of those listed, as a number or as a class such as `2xx`."""
    return any(status == one or f"{status // 100}xx" == str(one).lower() or str(status) == str(one) for one in expected)


def read_body(form: str, reply: Reply) -> Any:
    """The output: JSON where the server says that it sends JSON, text otherwise."""
    if form == "none" or not reply.body:
        return None
    if reply.is_cut or len(reply.body) > MAX_OUTPUT_BYTES:
        raise ValueError(describe_size(len(reply.body)))
    is_json = reply.content_type == "application/json" or reply.content_type.endswith("+json")
    if form == "json" and is_json:
        try:
            return msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"the response says that it is JSON, but it is not: {error}") from None
    return reply.body.decode(errors="replace").replace("\0", "")


def read_retry_after(text: str | None, now: float) -> float | None:
    """Seconds to wait, from either form of the header; None if there is none that makes sense."""
    if not text:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER_SECONDS)
    try:
        instant = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, instant - now), MAX_RETRY_AFTER_SECONDS)


def explain_failure(error: Exception) -> tuple[ErrorType, str]:
    """The error type and sentence for a request that got no answer."""
    for kinds, error_type, prefix in (
        (ForbiddenAddressError, ErrorType.BAD_TASK, ""),
        ((aiohttp.InvalidURL, aiohttp.InvalidUrlClientError), ErrorType.BAD_TASK, "http.url: "),
        (
            (aiohttp.ClientConnectorDNSError, socket.gaierror),
            ErrorType.DNS_ERROR,
            "the name cannot be resolved: ",
        ),
        ((aiohttp.ClientSSLError, ssl.SSLError), ErrorType.CONNECTION_ERROR, "TLS: "),
        # Only now: errors of certificates are values' errors too.
        (ValueError, ErrorType.BAD_TASK, ""),
        (TimeoutError, ErrorType.TIMEOUT, "no complete answer in time "),
        (aiohttp.ServerDisconnectedError, ErrorType.CONNECTION_ERROR, "the server closed the connection: "),
        ((aiohttp.ClientError, OSError), ErrorType.CONNECTION_ERROR, ""),
    ):
        if isinstance(error, kinds):
            return error_type, f"{prefix}{error}".strip() or type(error).__name__
    return ErrorType.EXCEPTION, f"{type(error).__name__}: {error}"


def show_url(url: object) -> str:
    """The URL as it may stand in a log: without user, password and query."""
    try:
        shown = URL(str(url))
        return str(shown.with_user(None).with_query(None).with_fragment(None)) if shown.host else str(url)
    except ValueError:
        return str(url)
