"""What passes between Rota and a worker: the same shapes in process and over HTTP.

The shapes that pass by the thousand per second are not frozen: freezing triples what it costs to make one.

A worker registers, claims assignments, renews its leases, and reports. Whoever offers that is a `WorkSource`:
the engine itself inside one process, an HTTP client elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class ErrorType(StrEnum):
    EXIT_CODE = "exit_code"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    CONNECTION_ERROR = "connection_error"
    DNS_ERROR = "dns_error"
    HTTP_ERROR = "http_error"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    POISON = "poison"
    BAD_OUTPUT = "bad_output"
    OOM = "oom"
    # Not the task's own doing: what was asked cannot be started at all.
    BAD_TASK = "bad_task"
    # A person said no.
    REJECTED = "rejected"
    # Of the run that a task has started and waited for.
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"
    EXCEPTION = "exception"
    # Somebody has declared it failed.
    MARKED = "marked"
    # Of a mapped task: some of its items have not succeeded.
    ITEM_FAILED = "item_failed"


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself. `name` is a label; identity is the incarnation that it gets back."""

    name: str = ""
    hostname: str = ""
    queues: tuple[str, ...] = ("default",)
    kinds: tuple[str, ...] = ("shell",)
    labels: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 1
    version: str = ""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """One start of one worker process. Every write carries the incarnation and lands only with it."""

    worker_id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Registered:
    worker_id: str
    incarnation: str
    heartbeat_interval_seconds: float
    lease_seconds: float

    @property
    def identity(self) -> WorkerIdentity:
        return WorkerIdentity(self.worker_id, self.incarnation)


@dataclass(slots=True)
class Assignment:
    """One attempt to execute: everything that execution needs, rendered."""

    task_run_id: str
    attempt: int
    run_id: str
    workflow: str
    task: str
    kind: str
    # The task's definition in the words of the definition JSON (`command`, `env`, `limits`, …), templates rendered.
    spec: Mapping[str, Any]
    timeout_seconds: float | None
    lease_seconds: float
    idempotency_key: str
    logical_date: str
    map_index: int = -1
    # Tries that the user's retry policy has paid for so far, this one included; a lost worker does not count.
    try_number: int = 1
    traceparent: str = ""
    # Values to be masked in the log.
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """Names one attempt in renewals, cancels and reports."""

    task_run_id: str
    attempt: int


@dataclass(slots=True)
class LogChunk:
    """Bytes of an attempt's log, from `offset` on. Offsets count every byte written, kept or not."""

    task_run_id: str
    attempt: int
    offset: int
    data: bytes
    stream: str = "output"


@dataclass(slots=True)
class Finished:
    """How an attempt ended. `status` is success, failed, cancelled or skipped; the engine decides about retries."""

    task_run_id: str
    attempt: int
    status: str
    exit_code: int | None = None
    http_status: int | None = None
    error_type: str | None = None
    error: str | None = None
    output: Any = None
    usage: Mapping[str, float] = field(default_factory=dict)
    # The server that was called asks to wait this long before the next try (HTTP Retry-After).
    retry_after_seconds: float | None = None
    # Cancelled, but the end of the process tree could not be verified.
    is_unconfirmed: bool = False


Report = LogChunk | Finished


@dataclass(frozen=True, slots=True)
class ReportResult:
    """Whether one report landed; if not, why (`late`, `unknown`, `bad_output`, …)."""

    is_accepted: bool
    code: str = "ok"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReportReply:
    """One result per report, in order, and new assignments if the worker asked for some."""

    results: tuple[ReportResult, ...]
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class RenewReply:
    """What the worker must know: attempts to cancel, attempts that are no longer its own, and whether to drain."""

    cancel: tuple[AttemptKey, ...] = ()
    lost: tuple[AttemptKey, ...] = ()
    is_draining: bool = False


class WorkSource(Protocol):
    """Where a worker gets its work. Raises `rota.domain.errors.Unavailable` when it cannot be reached now,
    `Unauthenticated` when the incarnation is not (or no longer) known: the worker then registers anew."""

    async def register(self, registration: Registration) -> Registered: ...

    async def claim(self, worker: WorkerIdentity, *, limit: int, wait_seconds: float) -> Sequence[Assignment]:
        """Up to `limit` assignments; waits up to `wait_seconds` for the first."""
        ...

    async def renew(self, worker: WorkerIdentity, running: Sequence[AttemptKey]) -> RenewReply:
        """Heartbeat: renews the leases of what runs here."""
        ...

    async def report(self, worker: WorkerIdentity, reports: Sequence[Report], *, claim: int = 0) -> ReportReply:
        """Records logs and outcomes; each item lands or is refused on its own."""
        ...

    async def leave(self, worker: WorkerIdentity, hand_back: Sequence[AttemptKey] = ()) -> None:
        """The worker stops: what it still holds goes back to the queue at once."""
        ...

    async def wait_for_orders(self, worker: WorkerIdentity, *, wait_seconds: float) -> bool:
        """True as soon as a cancel or drain may concern this worker (renew tells what); False after the wait."""
        ...
