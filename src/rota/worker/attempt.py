"""One attempt while it runs here: what the executors are given, and how they say what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any, Protocol

import structlog

from rota.domain.work import Assignment, AttemptKey, ErrorType, Finished
from rota.worker.logs import AttemptLog
from rota.worker.options import MEBIBYTE

log = structlog.get_logger(__name__)

MAX_ERROR_CHARACTERS = 4000


class StopReason(Enum):
    """Why an attempt is ended before its time."""

    CANCEL = "cancelled by request"
    TIMEOUT = "timed out"
    LOST = "the lease was lost"
    HAND_BACK = "the worker stops"
    OUTPUT_LIMIT = "wrote more than limits.output_mb"


class Attempt:
    """An assignment under way. An executor calls `succeed` or `fail` exactly once; a second call is ignored."""

    __slots__ = (
        "_on_end",
        "_on_flood",
        "_output_limit",
        "_output_size",
        "assignment",
        "handle",
        "is_finished",
        "key",
        "limits",
        "log",
        "stop_reason",
        "timer",
    )

    def __init__(
        self,
        assignment: Assignment,
        log: AttemptLog,
        *,
        on_end: Callable[[Attempt, Finished], None],
        on_flood: Callable[[Attempt], None],
    ) -> None:
        self.assignment = assignment
        self.key = AttemptKey(assignment.task_run_id, assignment.attempt)
        self.log = log
        self.stop_reason: StopReason | None = None
        self.is_finished = False
        self.timer: asyncio.TimerHandle | None = None
        # The executor's own note of what belongs to this attempt.
        self.handle: Any = None
        self.limits: Mapping[str, float] = assignment.spec.get("limits") or {}
        self._output_limit = self.limits.get("output_mb", 0) * MEBIBYTE
        self._output_size = 0
        self._on_end = on_end
        self._on_flood = on_flood

    def write(self, data: bytes, stream: str = "output") -> None:
        """Adds to the log what the task has written, and notices when that is more than it may write."""
        self.log.write(data, stream)
        if self._output_limit:
            self._output_size += len(data)
            if self._output_size > self._output_limit and self.stop_reason is None:
                self._on_flood(self)

    def succeed(
        self,
        output: Any = None,
        *,
        exit_code: int | None = None,
        http_status: int | None = None,
        usage: Mapping[str, float] | None = None,
    ) -> None:
        self._end(
            Finished(
                *self._names,
                "success",
                exit_code=exit_code,
                http_status=http_status,
                output=self.log.mask_output(output),
                usage=usage or {},
            )
        )

    def fail(
        self,
        error_type: ErrorType,
        error: str,
        *,
        exit_code: int | None = None,
        http_status: int | None = None,
        usage: Mapping[str, float] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self._end(
            Finished(
                *self._names,
                "failed",
                exit_code=exit_code,
                http_status=http_status,
                error_type=str(error_type),
                error=self.log.mask(error)[:MAX_ERROR_CHARACTERS],
                usage=usage or {},
                retry_after_seconds=retry_after_seconds,
            )
        )

    def end_stopped(
        self,
        *,
        exit_code: int | None = None,
        usage: Mapping[str, float] | None = None,
        is_unconfirmed: bool = False,
    ) -> None:
        """Ends an attempt that was told to stop; what is reported follows from the reason."""
        reason = self.stop_reason or StopReason.CANCEL
        seconds = self.assignment.timeout_seconds
        error = f"timed out after {seconds:g} s" if reason is StopReason.TIMEOUT and seconds else reason.value
        error_type = {
            StopReason.TIMEOUT: ErrorType.TIMEOUT,
            StopReason.OUTPUT_LIMIT: ErrorType.BAD_OUTPUT,
        }.get(reason, ErrorType.CANCELLED)
        self._end(
            Finished(
                *self._names,
                "cancelled" if error_type is ErrorType.CANCELLED else "failed",
                exit_code=exit_code,
                error_type=str(error_type),
                error=error + ("; its processes could not be verified to be gone" if is_unconfirmed else ""),
                usage=usage or {},
                is_unconfirmed=is_unconfirmed,
            )
        )

    @property
    def _names(self) -> tuple[str, int]:
        return self.assignment.task_run_id, self.assignment.attempt

    def _end(self, finished: Finished) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._on_end(self, finished)


def run_as_task(attempt: Attempt, coroutine: Coroutine[Any, Any, None]) -> None:
    """Executes the attempt as a task of the event loop; whatever happens to the task, the attempt ends."""

    def settle(task: asyncio.Task[None]) -> None:
        if task.cancelled():
            attempt.end_stopped()
        elif (error := task.exception()) is not None:
            log.error("executor_failed", task_run_id=attempt.key.task_run_id, exc_info=error)
            attempt.fail(ErrorType.EXCEPTION, f"{type(error).__name__}: {error}")

    attempt.handle = asyncio.get_running_loop().create_task(coroutine)
    attempt.handle.add_done_callback(settle)


def cancel_task(attempt: Attempt) -> None:
    if attempt.handle is not None:
        attempt.handle.cancel()


class Executor(Protocol):
    """Executes one kind of task. `start` and `stop` return at once; the end comes through the attempt."""

    async def open(self) -> None: ...

    def start(self, attempt: Attempt) -> None: ...

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        """Ends the attempt, by force after the grace. May be called again with a shorter grace."""
        ...

    async def close(self) -> None: ...


def name_attempt(assignment: Assignment) -> dict[str, str]:
    """The variables that tell a task which attempt it is."""
    names = {
        "ROTA_RUN_ID": assignment.run_id,
        "ROTA_WORKFLOW": assignment.workflow,
        "ROTA_TASK": assignment.task,
        "ROTA_TASK_RUN_ID": assignment.task_run_id,
        "ROTA_ATTEMPT": str(assignment.attempt),
        "ROTA_IDEMPOTENCY_KEY": assignment.idempotency_key,
        "ROTA_LOGICAL_DATE": assignment.logical_date,
    }
    if assignment.traceparent:
        names["TRACEPARENT"] = assignment.traceparent
    return names


def read_variables(assignment: Assignment) -> dict[str, str]:
    """The variables that the task itself sets."""
    return {str(name): str(value) for name, value in (assignment.spec.get("env") or {}).items()}
