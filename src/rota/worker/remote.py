"""The source of work at the other end of HTTP: several servers, one of which is asked at a time."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from rota.domain.errors import (
    Conflict,
    FieldError,
    Forbidden,
    InvalidInput,
    NotFound,
    RotaError,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from rota.domain.work import (
    Assignment,
    AttemptKey,
    LogChunk,
    Registered,
    Registration,
    RenewReply,
    Report,
    ReportReply,
    ReportResult,
    WorkerIdentity,
)

API = "/api/v1"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
# Shorter than servers keep idle connections, so that we never write into one that is being closed.
KEEP_ALIVE_SECONDS = 4.0
# More than one request is sent when the reports are larger than this together.
MAX_REQUEST_BYTES = 8_000_000
# What servers allow at most; who wants more asks again.
MAX_CLAIM = 1000
MAX_WAIT_SECONDS = 60.0
LARGE_BODY_BYTES = 500_000
T = TypeVar("T")

_KINDS: Mapping[int, type[RotaError]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidInput,
    429: TooManyRequests,
}


class _Log(Struct, tag="log", omit_defaults=True):
    task_run_id: str
    attempt: int
    offset: int
    data: bytes
    stream: str = "output"


class _End(Struct, tag="finished", omit_defaults=True):
    task_run_id: str
    attempt: int
    status: str
    exit_code: int | None = None
    http_status: int | None = None
    error_type: str | None = None
    error: str | None = None
    output: Any = None
    usage: Mapping[str, float] = {}
    retry_after_seconds: float | None = None
    is_unconfirmed: bool = False


class _Heartbeat(Struct, omit_defaults=True):
    worker_id: str
    running: Sequence[AttemptKey]
    wait: float = 0
    orders_seen: str = ""


class _Orders(Struct):
    cancel: tuple[AttemptKey, ...]
    lost: tuple[AttemptKey, ...]
    is_draining: bool
    has_orders: bool
    orders_seen: str


class _Fault(Struct):
    field: str = ""
    reason: str = ""


class _Problem(Struct):
    detail: str = ""
    code: str | None = None
    errors: tuple[_Fault, ...] = ()


_encode = msgspec.json.Encoder().encode
_read_registered = msgspec.json.Decoder(Registered).decode
_read_orders = msgspec.json.Decoder(_Orders).decode
_read_assignments = msgspec.json.Decoder(tuple[Assignment, ...]).decode
_read_reply = msgspec.json.Decoder(ReportReply).decode
_read_problem = msgspec.json.Decoder(_Problem).decode


class RemoteSource:
    """Satisfies `WorkSource`. Servers are asked in turn: the same one for as long as it answers. When none does,
    `find` may know others."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str | None = None,
        *,
        find: Callable[[], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        if not urls and find is None:
            raise InvalidInput.of([FieldError("server", "name at least one address, such as http://127.0.0.1:8080")])
        self._urls = [url.rstrip("/") + API for url in urls]
        self._find = find
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._current = 0
        self._orders_seen = ""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Lets go of the connections; the next call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> RemoteSource:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    # -- the protocol -------------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> Registered:
        body = {
            "worker_id": registration.name,
            "hostname": registration.hostname,
            "queues": registration.queues,
            "kinds": registration.kinds,
            "labels": registration.labels,
            "concurrency": registration.concurrency,
            "version": registration.version,
        }
        self._orders_seen = ""
        return self._read(_read_registered, await self._call("POST", "/workers/register", body=_encode(body)))

    async def claim(self, worker: WorkerIdentity, *, limit: int, wait_seconds: float) -> Sequence[Assignment]:
        limit, wait_seconds = min(limit, MAX_CLAIM), min(wait_seconds, MAX_WAIT_SECONDS)
        path = f"/workers/{worker.worker_id}/next?limit={limit}&wait={wait_seconds:g}"
        answer = await self._call("GET", path, worker=worker, wait_seconds=wait_seconds)
        if not answer:
            return ()
        # With a limit of one the assignment comes without a list around it.
        return self._read(_read_assignments, b"[%b]" % answer if limit == 1 else answer)

    async def renew(self, worker: WorkerIdentity, running: Sequence[AttemptKey]) -> RenewReply:
        body = _encode(_Heartbeat(worker.worker_id, running))
        answer = await self._call("POST", "/workers/heartbeat", body=body, worker=worker)
        orders = self._read(_read_orders, answer)
        self._orders_seen = orders.orders_seen
        return RenewReply(orders.cancel, orders.lost, orders.is_draining)

    async def report(self, worker: WorkerIdentity, reports: Sequence[Report], *, claim: int = 0) -> ReportReply:
        path = f"/workers/{worker.worker_id}/events"
        results: list[ReportResult] = []
        parts = list(_cut(reports))
        for number, part in enumerate(parts, start=1):
            wanted = min(claim, MAX_CLAIM) if number == len(parts) else 0
            body = b'{"claim":%d,"events":[%b]}' % (wanted, b",".join(part))
            answer = self._read(_read_reply, await self._call("POST", path, body=body, worker=worker))
            results += answer.results
            if number == len(parts):
                return ReportReply(tuple(results), answer.assignments)
        return ReportReply(())

    async def leave(self, worker: WorkerIdentity, hand_back: Sequence[AttemptKey] = ()) -> None:
        """Says good-bye; whatever this worker still holds goes back to the queue, named or not."""
        await self._call("POST", f"/workers/{worker.worker_id}/leave", worker=worker)

    async def wait_for_orders(self, worker: WorkerIdentity, *, wait_seconds: float) -> bool:
        """Holds a line to the server, which doubts the worker when the line breaks. Therefore a broken line is an
        order, too: to renew at once, through whichever server answers."""
        wait_seconds = min(wait_seconds, MAX_WAIT_SECONDS)
        body = _encode(_Heartbeat(worker.worker_id, (), wait_seconds, self._orders_seen))
        path = "/workers/heartbeat"
        try:
            answer = await self._call_once("POST", path, body=body, worker=worker, wait_seconds=wait_seconds)
        except Unavailable:
            return True
        orders = self._read(_read_orders, answer)
        self._orders_seen = orders.orders_seen
        return orders.has_orders

    # -- requests -----------------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        worker: WorkerIdentity | None = None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        """The answer of the first server that gives one. Raises the error that it tells, or Unavailable."""
        # Once more than there are servers: a connection that has been idle may break for no reason.
        for _ in self._urls:
            try:
                return await self._call_once(method, path, body=body, worker=worker, wait_seconds=wait_seconds)
            except Unavailable:
                continue
        await self._look_around()
        return await self._call_once(method, path, body=body, worker=worker, wait_seconds=wait_seconds)

    async def _look_around(self) -> None:
        """The servers that there are now; where nobody can tell, those that are known."""
        if self._find is None:
            return
        try:
            found = [url.rstrip("/") + API for url in await self._find()]
        except Unavailable:
            if not self._urls:
                raise
            return
        if found != self._urls:
            self._urls, self._current = found, 0

    async def _call_once(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        worker: WorkerIdentity | None = None,
        wait_seconds: float = 0.0,
    ) -> bytes:
        if not self._urls:
            await self._look_around()
        url = self._urls[self._current]
        headers = {"X-Rota-Incarnation": worker.incarnation} if worker else None
        # What is large is sent piece by piece, or it would hold up everything else.
        data = io.BytesIO(body) if body and len(body) > LARGE_BODY_BYTES else body
        timeout = aiohttp.ClientTimeout(total=wait_seconds + ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with self._open().request(method, url + path, data=data, headers=headers, timeout=timeout) as answer:
                content = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._turn_away(url)
            raise Unavailable(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
        if status < 300:
            return content
        raise self._make_error(url, status, content)

    def _make_error(self, url: str, status: int, content: bytes) -> RotaError:
        try:
            problem = _read_problem(content)
        except msgspec.DecodeError:
            problem = _Problem()
        kind = _KINDS.get(status)
        if kind is None:
            self._turn_away(url)
            return Unavailable(f"{url} answered {status}: {problem.detail or 'no reason given'}")
        faults = [FieldError(fault.field, fault.reason) for fault in problem.errors]
        error = kind(problem.detail or f"{url} answered {status}", code=problem.code)
        error.errors = tuple(faults)
        return error

    def _turn_away(self, url: str) -> None:
        """The next server is asked from now on, unless another call has seen to that already."""
        if self._urls[self._current] == url:
            self._current = (self._current + 1) % len(self._urls)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Addresses are given on purpose: no proxy of the environment stands between a worker and its server.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _read(self, read: Callable[[bytes], T], content: bytes) -> T:
        try:
            return read(content)
        except msgspec.DecodeError as error:
            url = self._urls[self._current]
            raise Unavailable(f"{url} answers with something that is not Rota's protocol: {error}") from error


def _cut(reports: Sequence[Report]) -> Iterator[list[bytes]]:
    """The reports as JSON, in parts that a server takes; one empty part when there are none."""
    part: list[bytes] = []
    size = 0
    for event in _write(reports):
        if part and size + len(event) > MAX_REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(event)
        size += len(event) + 1
    yield part


def _write(reports: Iterable[Report]) -> Iterator[bytes]:
    for report in reports:
        if isinstance(report, LogChunk):
            yield _encode(_Log(report.task_run_id, report.attempt, report.offset, report.data, report.stream))
        else:
            yield _encode(
                _End(
                    report.task_run_id,
                    report.attempt,
                    report.status,
                    report.exit_code,
                    report.http_status,
                    report.error_type,
                    report.error,
                    report.output,
                    report.usage,
                    report.retry_after_seconds,
                    report.is_unconfirmed,
                )
            )
