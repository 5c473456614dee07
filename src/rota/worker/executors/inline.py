"""Async functions on the worker's own loop: the fastest way, for code that trusts the worker and each other.

Cancelling is cooperative: the function is interrupted where it awaits. One that never awaits holds up the worker.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Sequence

import msgspec

from rota.domain.work import ErrorType
from rota.worker.attempt import Attempt, cancel_task, run_as_task
from rota.worker.functions import BadReferenceError, BadResultError, FunctionTable, encode_result, extend_path
from rota.worker.options import MAX_OUTPUT_BYTES
from rota.worker.python_messages import describe_arguments

# Results that are JSON as they stand.
PLAIN_TYPES = (type(None), bool, int)


class InlineExecutor:
    """Runs coroutine functions as tasks of the running loop."""

    def __init__(self, python_path: Sequence[str] = ()) -> None:
        self._python_path = python_path
        self._functions = FunctionTable()

    async def open(self) -> None:
        extend_path(self._python_path)

    async def close(self) -> None:
        """Nothing to give back: every attempt has ended by now."""

    def start(self, attempt: Attempt) -> None:
        run_as_task(attempt, self._run(attempt))

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        cancel_task(attempt)

    async def _run(self, attempt: Attempt) -> None:
        spec = attempt.assignment.spec
        try:
            function = self._functions.get(str(spec.get("python") or ""))
            if not inspect.iscoroutinefunction(inspect.unwrap(function)):
                raise BadReferenceError(
                    f"python: isolation: inline needs an async function, and {spec.get('python')!r} is not one"
                )
            arguments = describe_arguments(spec.get("args"))
            coroutine = function(**arguments) if isinstance(arguments, dict) else function(*arguments)
            result = await coroutine
            if not isinstance(result, PLAIN_TYPES):
                result = msgspec.json.decode(encode_result(result, MAX_OUTPUT_BYTES))
        except BadReferenceError as error:
            attempt.fail(ErrorType.BAD_TASK, str(error))
        except BadResultError as error:
            attempt.fail(ErrorType.BAD_OUTPUT, str(error))
        except Exception as error:  # noqa: BLE001 - the task's own code may raise anything
            attempt.log.write("".join(traceback.format_exception(error)).encode(errors="replace"))
            attempt.fail(ErrorType.EXCEPTION, f"{type(error).__name__}: {error}")
        else:
            attempt.succeed(None if spec.get("output") == "none" else result)
