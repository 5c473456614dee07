"""A scripted source of work: hands out assignments, records reports, and can be away or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rota.domain.errors import Unauthenticated, Unavailable
from rota.domain.work import (
    Assignment,
    AttemptKey,
    Finished,
    LogChunk,
    Registered,
    Registration,
    RenewReply,
    Report,
    ReportReply,
    ReportResult,
    WorkerIdentity,
)


def make_assignment(number: int = 1, kind: str = "shell", **fields: Any) -> Assignment:
    """An assignment; what is not one of its fields goes into the spec."""
    names = {field for field in Assignment.__dataclass_fields__ if field != "spec"}
    given = {name: fields.pop(name) for name in list(fields) if name in names}
    values: dict[str, Any] = {
        "task_run_id": f"task-run-{number}",
        "attempt": 1,
        "run_id": "run-1",
        "workflow": "flow",
        "task": "step",
        "timeout_seconds": None,
        "lease_seconds": 30.0,
        "idempotency_key": f"key-{number}",
        "logical_date": "2026-01-02T03:04:05Z",
    }
    return Assignment(kind=kind, spec=fields, **{**values, **given})


async def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Waits for something that nobody announces, such as a file or a process of the operating system."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()

    def look() -> None:
        if reached.done():
            return
        if condition():
            reached.set_result(None)
        else:
            loop.call_later(0.01, look)

    look()
    await asyncio.wait_for(reached, seconds)


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


class ScriptedSource:
    """Satisfies `WorkSource`. `is_away` makes every call fail; `refused` names identities that are not known."""

    def __init__(self, assignments: Iterable[Assignment] = (), *, lease_seconds: float = 30.0) -> None:
        self.queue = list(assignments)
        self.lease_seconds = lease_seconds
        self.heartbeat_interval_seconds = 0.05
        self.is_away = False
        self.refused: set[str] = set()
        self.cancel: set[AttemptKey] = set()
        self.lost: set[AttemptKey] = set()
        self.is_draining = False
        self.reports: list[Report] = []
        self.calls: list[str] = []
        self.registrations: list[Registration] = []
        self.renewals: list[tuple[AttemptKey, ...]] = []
        self.left: list[tuple[AttemptKey, ...]] = []
        self.refuse: Callable[[Report], ReportResult] = lambda report: ReportResult(True)
        self.most_held = 0
        self._held = 0
        self._changed = asyncio.Condition()
        self._orders = asyncio.Event()

    # -- for tests ----------------------------------------------------------------------------------------

    async def offer(self, *assignments: Assignment) -> None:
        self.queue.extend(assignments)
        await self._notify()

    def order(self) -> None:
        """Wakes the worker to ask for its orders."""
        self._orders.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until the condition holds, checked whenever the worker has said something."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(condition)

    async def until_finished(self, count: int = 1) -> list[Finished]:
        await self.until(lambda: len(self.finished) >= count)
        return self.finished

    @property
    def finished(self) -> list[Finished]:
        return [report for report in self.reports if isinstance(report, Finished)]

    def chunks(self, number: int = 1) -> list[LogChunk]:
        name = f"task-run-{number}"
        return [item for item in self.reports if isinstance(item, LogChunk) and item.task_run_id == name]

    def log(self, number: int = 1) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks(number))

    # -- the protocol -------------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> Registered:
        await self._enter("register")
        self.registrations.append(registration)
        await self._notify()
        number = len(self.registrations)
        return Registered("worker-1", f"incarnation-{number}", self.heartbeat_interval_seconds, self.lease_seconds)

    async def claim(self, worker: WorkerIdentity, *, limit: int, wait_seconds: float) -> Sequence[Assignment]:
        await self._enter("claim", worker)
        async with self._changed:
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait_for(lambda: bool(self.queue) or self.is_away)
            except TimeoutError:
                return ()
        self._check(worker)
        return self._take(limit)

    async def renew(self, worker: WorkerIdentity, running: Sequence[AttemptKey]) -> RenewReply:
        await self._enter("renew", worker)
        self.renewals.append(tuple(running))
        await self._notify()
        return RenewReply(tuple(self.cancel), tuple(self.lost & set(running)), self.is_draining)

    async def report(self, worker: WorkerIdentity, reports: Sequence[Report], *, claim: int = 0) -> ReportReply:
        await self._enter("report", worker)
        self.reports.extend(reports)
        self._held -= sum(1 for item in reports if isinstance(item, Finished))
        await self._notify()
        return ReportReply(tuple(map(self.refuse, reports)), tuple(self._take(claim)))

    async def leave(self, worker: WorkerIdentity, hand_back: Sequence[AttemptKey] = ()) -> None:
        await self._enter("leave", worker)
        self.left.append(tuple(hand_back))
        await self._notify()

    async def wait_for_orders(self, worker: WorkerIdentity, *, wait_seconds: float) -> bool:
        await self._enter("wait_for_orders", worker)
        await self._orders.wait()
        self._orders.clear()
        return True

    # -- inside -------------------------------------------------------------------------------------------

    async def _enter(self, call: str, worker: WorkerIdentity | None = None) -> None:
        self.calls.append(call)
        if self.is_away:
            await self._notify()
        await asyncio.sleep(0)
        self._check(worker)

    def _check(self, worker: WorkerIdentity | None) -> None:
        if self.is_away:
            raise Unavailable("away")
        if worker is not None and worker.incarnation in self.refused:
            raise Unauthenticated("unknown incarnation")

    def _take(self, limit: int) -> list[Assignment]:
        taken, self.queue = self.queue[:limit], self.queue[limit:]
        self._held += len(taken)
        self.most_held = max(self.most_held, self._held)
        return taken

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
