"""Python tasks: in warm child processes, or (`isolation: inline`) on the worker's own loop."""

from __future__ import annotations

from rota.domain.work import ErrorType
from rota.worker.attempt import Attempt, name_attempt, read_variables
from rota.worker.executors.inline import InlineExecutor
from rota.worker.executors.python_pool import PythonPool
from rota.worker.python_messages import Call, describe_arguments


class PythonExecutor:
    """Hands each task to where its isolation wants it."""

    def __init__(self, pool: PythonPool, inline: InlineExecutor) -> None:
        self._pool = pool
        self._inline = inline
        self._last_number = 0

    async def open(self) -> None:
        await self._inline.open()
        self._pool.open()

    async def close(self) -> None:
        await self._pool.close()
        await self._inline.close()

    def start(self, attempt: Attempt) -> None:
        assignment = attempt.assignment
        spec = assignment.spec
        if spec.get("isolation") == "inline":
            self._inline.start(attempt)
            return
        self._last_number += 1
        try:
            call = Call(
                number=self._last_number,
                reference=str(spec.get("python") or ""),
                arguments=describe_arguments(spec.get("args")),
                environment=name_attempt(assignment),
                own_environment=read_variables(assignment),
                working_directory=str(spec.get("working_directory") or ""),
            )
        except ValueError as error:
            attempt.fail(ErrorType.BAD_TASK, str(error))
            return
        self._pool.start(attempt, call)

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        if attempt.assignment.spec.get("isolation") == "inline":
            self._inline.stop(attempt, grace_seconds)
        else:
            self._pool.stop(attempt, grace_seconds)
