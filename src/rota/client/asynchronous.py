"""The client for asyncio. What the server refuses is raised as the error that it was there (`rota.domain.errors`)."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import aiohttp

from rota.client.http import API, CONNECT_SECONDS, UNREACHABLE, Answer, explain, read_problem, write_query
from rota.domain.errors import Unavailable
from rota.domain.states import RUN_FINAL

LOCAL = "http://127.0.0.1:8080"
# The server may be restarting, or busy: asked again, these can be answered.
PASSING = frozenset({429, 502, 503, 504})
FIRST_SECONDS, LONGEST_SECONDS = 0.1, 10.0
HEARTBEAT_SECONDS = 30.0
PAGE = 500


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened. `seq` is where to go on from."""

    type: str
    seq: int
    payload: dict[str, Any]


class AsyncClient:
    """Asks the servers in turn until one answers; repeats what may be repeated. Use it as `async with`."""

    def __init__(
        self,
        servers: str | Sequence[str] = LOCAL,
        *,
        token: str = "",
        namespace: str = "default",
        timeout_seconds: float = 60.0,
        retries: int = 5,
    ) -> None:
        found = (servers,) if isinstance(servers, str) else tuple(servers)
        self._servers = tuple(server.rstrip("/") for server in found)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._namespace = namespace
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._retries = retries
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> AsyncClient:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._session is not None:
            await self._session.close()

    # --- any call -----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """One call below /api/v1; its JSON. A POST is repeated only with a key, which makes that safe."""
        may_repeat = method != "POST" or idempotency_key is not None
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        pairs = write_query({"namespace": self._namespace, **(query or {})})
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                answer, wait_seconds = await self._send(
                    method, self._choose(attempt) + API + path, pairs, body, headers
                )
            except (aiohttp.ClientError, TimeoutError) as error:
                # What has not reached anybody has done nothing.
                if is_last or not (may_repeat or isinstance(error, aiohttp.ClientConnectorError)):
                    raise Unavailable(f"no Rota server answers: {explain(error)}", code=UNREACHABLE) from error
                wait_seconds = None
            else:
                if answer.status < 400:
                    return answer.read_json()
                if is_last or not may_repeat or answer.status not in PASSING:
                    raise read_problem(answer)
            await asyncio.sleep(_choose_pause(attempt, wait_seconds))
        raise AssertionError("the last attempt answers or raises")

    async def iterate(self, path: str, **query: object) -> AsyncGenerator[dict[str, Any], None]:
        """All items of a list, page by page."""
        cursor: str | None = None
        while True:
            page = await self.request("GET", path, query={"limit": PAGE, **query, "cursor": cursor})
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def _send(
        self, method: str, url: str, query: Sequence[tuple[str, str]], body: object, headers: Mapping[str, str]
    ) -> tuple[Answer, float | None]:
        session = self._require_session()
        async with session.request(
            method, url, params=query, json=body, headers=headers, timeout=self._timeout
        ) as response:
            after = response.headers.get("Retry-After", "")
            answer = Answer(response.status, response.content_type, await response.read())
            return answer, float(after) if after.isdigit() else None

    def _choose(self, attempt: int) -> str:
        return self._servers[attempt % len(self._servers)]

    def _require_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is not open: use it as `async with AsyncClient(...) as client:`")
        return self._session

    # --- workflows, runs and jobs ---------------------------------------------------------------------------------

    async def apply(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Makes the workflow be as the definition says."""
        found: dict[str, Any] = await self.request("PUT", f"/workflows/{definition['name']}", body=dict(definition))
        return found

    async def trigger(
        self, workflow: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Starts a run, once, however often the call had to be repeated."""
        body = {"params": dict(params or {})}
        return await self._create(f"/workflows/{workflow}/trigger", body, idempotency_key)

    async def submit_job(self, *, idempotency_key: str | None = None, **fields: Any) -> dict[str, Any]:
        """Creates a job: `command="make report"`, `webhook_url=…`, `schedule=…`."""
        return await self._create("/jobs", fields, idempotency_key)

    async def read_run(self, run_id: str) -> dict[str, Any]:
        """A run with its task runs."""
        found: dict[str, Any] = await self.request("GET", f"/workflow-runs/{run_id}")
        return found

    def list_runs(
        self, *, workflow: str | None = None, status: str | Sequence[str] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Runs, the newest first, all pages of them."""
        return self.iterate("/workflow-runs", workflow=workflow, status=status)

    async def cancel_run(self, run_id: str, reason: str = "") -> dict[str, Any]:
        found: dict[str, Any] = await self.request("POST", f"/workflow-runs/{run_id}/cancel", body={"reason": reason})
        return found

    async def wait(self, run_id: str) -> dict[str, Any]:
        """The run, as soon as it has ended."""
        async with aclosing(self.watch(types=("workflow_status",), run=run_id, since=0)) as events:
            async for event in events:
                if event.payload["status"] in RUN_FINAL:
                    found = await self.read_run(run_id)
                    # Tried again meanwhile, it goes on.
                    if found["status"] in RUN_FINAL:
                        return found
        raise AssertionError("events never end")

    async def _create(self, path: str, body: Mapping[str, Any], idempotency_key: str | None) -> dict[str, Any]:
        key = idempotency_key or uuid.uuid4().hex
        found: dict[str, Any] = await self.request("POST", path, body=dict(body), idempotency_key=key)
        return found

    # --- live events ------------------------------------------------------------------------------------------------

    async def watch(
        self,
        *,
        types: Sequence[str] = (),
        workflow: str | None = None,
        run: str | None = None,
        since: int | None = None,
    ) -> AsyncGenerator[LiveEvent, None]:
        """What happens, without an end. After a lost connection it goes on where it was, and misses nothing."""
        position, failures = since, 0
        wanted = {"namespace": self._namespace, "type": tuple(types), "workflow": workflow, "run": run}
        while True:
            try:
                async with self._connect(failures, {**wanted, "since": position}) as socket:
                    failures = 0
                    begins = socket._response.headers.get("X-Rota-Since", "")
                    position = int(begins) if begins.isdigit() else position
                    async for message in socket:
                        event = LiveEvent(**message.json())
                        position = event.seq
                        yield event
            except aiohttp.WSServerHandshakeError as error:
                if error.status not in PASSING:
                    await self._explain_refusal({**wanted, "since": position})
                    raise Unavailable(f"the server refused the connection: {error.status}") from error
                failures += 1
            except (aiohttp.ClientError, OSError) as error:
                failures += 1
                if failures > self._retries:
                    raise Unavailable(f"no Rota server answers: {explain(error)}", code=UNREACHABLE) from error
            await asyncio.sleep(_choose_pause(failures, None))

    def _connect(self, attempt: int, query: Mapping[str, object]) -> Any:
        url = f"{self._choose(attempt)}{API}/ws/updates"
        return self._require_session().ws_connect(url, params=write_query(query), heartbeat=HEARTBEAT_SECONDS)

    async def _explain_refusal(self, query: Mapping[str, object]) -> None:
        """A refused WebSocket has no readable body: the same question as a stream says why."""
        url = f"{self._choose(0)}{API}/events"
        async with self._require_session().get(url, params=write_query(query), timeout=self._timeout) as response:
            if response.status >= 400:
                raise read_problem(Answer(response.status, response.content_type, await response.read()))


def _choose_pause(attempt: int, wait_seconds: float | None) -> float:
    """0.1, 0.2, 0.4 … 10 seconds, shortened at random; or what the server asks for."""
    if wait_seconds is not None:
        return min(wait_seconds, LONGEST_SECONDS)
    return min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**attempt) * random.uniform(0.5, 1.0)
