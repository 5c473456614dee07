"""Shell tasks: a string for `/bin/sh -c`, or a list of words executed as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.domain.work import ErrorType
from rota.worker.attempt import Attempt, name_attempt, read_variables
from rota.worker.exits import explain_exit, limit_argv
from rota.worker.launch import Ended
from rota.worker.logs import TailBuffer
from rota.worker.options import MAX_OUTPUT_BYTES, MEBIBYTE
from rota.worker.output import BadOutputError, read_output
from rota.worker.pipes import PipeReader, open_pipe
from rota.worker.processes import Processes, write_memory_file


class Running:
    """What belongs to one shell attempt."""

    __slots__ = ("captured", "number", "readers")

    def __init__(self) -> None:
        self.number = 0
        self.readers: list[PipeReader] = []
        self.captured: TailBuffer | None = None


class ShellExecutor:
    """Runs programs through the launcher, which kills whole trees."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def open(self) -> None:
        """Nothing to prepare: the launcher is the worker's."""

    async def close(self) -> None:
        """Nothing to give back."""

    def start(self, attempt: Attempt) -> None:
        spec = attempt.assignment.spec
        limits = attempt.limits
        argv = build_argv(spec)
        if not argv:
            attempt.fail(ErrorType.BAD_TASK, "command: expected a string or a non-empty list of words")
            return
        running = attempt.handle = Running()
        descriptors = self._connect(attempt, running)
        stdin = spec.get("stdin")
        if stdin is not None:
            descriptors[0] = write_memory_file(str(stdin).encode(errors="surrogateescape"))
        running.number = self._processes.spawn(
            limit_argv(argv, limits),
            lambda ended: self._end(attempt, ended),
            environment=name_attempt(attempt.assignment) | read_variables(attempt.assignment),
            descriptors=descriptors,
            working_directory=str(spec.get("working_directory") or ""),
            memory_bytes=int(limits.get("memory_mb", 0) * MEBIBYTE),
        )

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        if isinstance(attempt.handle, Running):
            self._processes.stop(attempt.handle.number, grace_seconds)

    def _connect(self, attempt: Attempt, running: Running) -> dict[int, int]:
        """Pipes from the child to the log. The two streams are told apart only where the output is wanted,
        since one pipe keeps the order in which they were written."""
        if attempt.assignment.spec.get("output", "none") not in ("json", "text"):
            reading, writing = open_pipe()
            running.readers.append(PipeReader(reading, attempt.write))
            return {1: writing, 2: writing}
        captured = running.captured = TailBuffer(MAX_OUTPUT_BYTES + 1)

        def take_stdout(data: bytes) -> None:
            captured.write(data)
            attempt.write(data, "stdout")

        out_reading, out_writing = open_pipe()
        error_reading, error_writing = open_pipe()
        running.readers.append(PipeReader(out_reading, take_stdout))
        running.readers.append(PipeReader(error_reading, lambda data: attempt.write(data, "stderr")))
        return {1: out_writing, 2: error_writing}

    def _end(self, attempt: Attempt, ended: Ended) -> None:
        running = attempt.handle
        for reader in running.readers:
            reader.finish()
        usage = {
            "cpu_seconds": round(ended.cpu_seconds, 6),
            "peak_memory_bytes": float(ended.peak_memory_bytes),
        }
        if ended.start_error:
            attempt.fail(ErrorType.BAD_TASK, ended.start_error)
        elif ended.is_lost:
            attempt.fail(ErrorType.WORKER_LOST, "the launcher of this worker died; its processes were killed")
        elif attempt.stop_reason is not None:
            attempt.end_stopped(exit_code=ended.exit_code, usage=usage, is_unconfirmed=not ended.is_verified)
        else:
            report_end(attempt, ended, running.captured, usage)


def report_end(attempt: Attempt, ended: Ended, captured: TailBuffer | None, usage: Mapping[str, float]) -> None:
    """Says how a program that ended by itself (or by a limit) has ended."""
    spec = attempt.assignment.spec
    if ended.exit_code == 0 and not ended.is_out_of_memory:
        try:
            output = read_output(spec.get("output", "none"), captured)
        except BadOutputError as error:
            attempt.fail(ErrorType.BAD_OUTPUT, str(error), exit_code=0, usage=usage)
        else:
            attempt.succeed(output, exit_code=0, usage=usage)
        return
    error_type, sentence = explain_exit(ended, attempt.limits)
    attempt.fail(error_type, sentence, exit_code=ended.exit_code, usage=usage)


def build_argv(spec: Mapping[str, Any]) -> list[str]:
    """The words to execute; empty if the command cannot be one."""
    command = spec.get("command")
    if isinstance(command, str) and command.strip():
        return ["/bin/sh", "-c", command]
    if isinstance(command, list | tuple) and command:
        return [str(word) for word in command]
    return []
