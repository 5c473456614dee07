"""A warm Python process: takes one call after the other from its socket, and answers each with JSON."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import io
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any, NoReturn

import msgspec

from rota.domain.work import ErrorType
from rota.worker.functions import BadReferenceError, BadResultError, FunctionTable, encode_result, extend_path
from rota.worker.launch import MARKER
from rota.worker.proc import list_processes, read_marker, read_resident_bytes
from rota.worker.python_messages import (
    MAX_PACKET_BYTES,
    QUEUE_DESCRIPTOR,
    REPLY_DESCRIPTOR,
    Call,
    Reply,
    Settings,
)

PR_SET_PDEATHSIG = 1
MEMORY_CHECK_SECONDS = 1.0
ANCILLARY_BYTES = socket.CMSG_SPACE(4)
# The interpreter's own notices of a new process.
SPAWN_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})

decode_call = msgspec.json.Decoder(Call).decode
encode = msgspec.json.Encoder().encode


class TaskStoppedError(BaseException):
    """Raised inside the running task by TERM, so that its `finally` blocks run before the process ends."""


class PythonChild:
    """Runs calls one at a time until the socket closes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._separator = settings.separator.encode()
        self._queue = socket.socket(fileno=os.dup(QUEUE_DESCRIPTOR))
        self._replies = socket.socket(fileno=os.dup(REPLY_DESCRIPTOR))
        os.close(QUEUE_DESCRIPTOR)
        os.close(REPLY_DESCRIPTOR)
        self._functions = FunctionTable()
        self._runner: asyncio.Runner | None = None
        self._memory_check_at = 0.0
        self._is_spoilt = False
        self._marker = os.environ.get(MARKER, "")
        self._has_spawned = False
        sys.addaudithook(self._notice)

    def serve(self) -> None:
        """Answers calls; returns when there will be no more."""
        self._send(Reply(0))
        is_going_on = True
        while is_going_on:
            packet, ancillary, _, _ = self._queue.recvmsg(MAX_PACKET_BYTES + 1000, ANCILLARY_BYTES)
            if not packet:
                return
            call = decode_call(packet)
            if call.spooled_bytes:
                call = read_spooled(call, ancillary)
            if self._functions.has_changed():
                self._send(Reply(call.number, is_last=True, is_refused=True))
                return
            is_going_on = self._answer(call)

    def _answer(self, call: Call) -> bool:
        began_at, began_cpu = time.perf_counter(), time.process_time()
        kept = self._prepare(call)
        exit_code: int | None = None
        output, error_type, error = b"null", None, ""
        try:
            output = encode_result(self._call(call), self._settings.max_output_bytes)
        except (BadReferenceError, BadResultError) as failure:
            is_reference = isinstance(failure, BadReferenceError)
            error_type, error = ErrorType.BAD_TASK if is_reference else ErrorType.BAD_OUTPUT, str(failure)
        except SystemExit as failure:
            exit_code = read_exit_code(failure)
            if exit_code:
                error_type, error = ErrorType.EXIT_CODE, f"exit code {exit_code}"
        except TaskStoppedError:
            self._end_stopped()
        except BaseException as failure:  # noqa: BLE001 - the task's own code may raise anything
            error_type, error = ErrorType.EXCEPTION, describe(failure)
            print_traceback(failure)
        self._tidy_up(kept)
        is_last = self._is_worn_out()
        numbers = (time.perf_counter() - began_at, time.process_time() - began_cpu)
        self._send(Reply(call.number, msgspec.Raw(output), error_type, error, exit_code, *numbers, is_last=is_last))
        return not is_last

    def _call(self, call: Call) -> Any:
        if call.working_directory:
            try:
                os.chdir(call.working_directory)
            except OSError as error:
                where = f"working_directory {call.working_directory!r}"
                raise BadReferenceError(f"cannot change to {where}: {error.strerror}") from None
        function = self._functions.get(call.reference)
        arguments = call.arguments
        result = function(**arguments) if isinstance(arguments, dict) else function(*arguments)
        if inspect.iscoroutine(result):
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(result)
        return result

    def _end_stopped(self) -> NoReturn:
        """Lets coroutines clean up as functions have done already, then ends the process."""
        try:
            if self._runner is not None:
                self._runner.close()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(128 + signal.SIGTERM)

    def _prepare(self, call: Call) -> tuple[str, dict[str, str | None]]:
        """Sets the environment; answers what must be put back afterwards."""
        os.environ.update(call.environment)
        kept = {name: os.environ.get(name) for name in call.own_environment}
        os.environ.update(call.own_environment)
        return (os.getcwd() if call.working_directory else ""), kept

    def _tidy_up(self, kept: tuple[str, dict[str, str | None]]) -> None:
        directory, variables = kept
        if directory:
            os.chdir(directory)
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            # All output before this mark belongs to this call.
            os.write(1, self._separator)
        except (OSError, ValueError):
            # The task has closed it: that is its own affair, and the next one gets a new process.
            self._is_spoilt = True

    def _notice(self, event: str, _arguments: tuple[object, ...]) -> None:
        if event in SPAWN_EVENTS:
            self._has_spawned = True

    def _leaves_processes(self) -> bool:
        """Whether a call has left something running. It ends with this process, so this process has to end."""
        if not self._has_spawned:
            return False
        self._has_spawned = False
        own = os.getpid()
        return any(pid != own and read_marker(pid, MARKER) == self._marker for pid in list_processes())

    def _is_worn_out(self) -> bool:
        now = time.monotonic()
        if self._is_spoilt or self._leaves_processes():
            return True
        if now < self._memory_check_at:
            return False
        self._memory_check_at = now + MEMORY_CHECK_SECONDS
        return read_resident_bytes(os.getpid()) > self._settings.max_memory_bytes

    def _send(self, reply: Reply) -> None:
        self._replies.sendall(encode(reply) + b"\n")


def read_spooled(call: Call, ancillary: list[tuple[int, int, bytes]]) -> Call:
    """The whole of a call that was too long for its packet."""
    descriptor = memoryview(ancillary[0][2]).cast("i")[0]
    with open(descriptor, "rb") as file:
        return decode_call(file.read(call.spooled_bytes))


def read_exit_code(failure: SystemExit) -> int:
    if failure.code is None:
        return 0
    if isinstance(failure.code, int):
        return failure.code
    sys.stderr.write(f"{failure.code}\n")
    return 1


def describe(failure: BaseException) -> str:
    try:
        text = str(failure)
    except Exception:  # noqa: BLE001 - the message is made by the task's own code
        text = "(its message cannot be shown)"
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def print_traceback(failure: BaseException) -> None:
    """The traceback from the task's own first frame on, into the log."""
    frame = failure.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__:
        frame = frame.tb_next
    try:
        traceback.print_exception(type(failure), failure, frame)
    except Exception as error:  # noqa: BLE001 - the exception is of the task's own making
        os.write(2, f"(the traceback cannot be shown: {type(error).__name__})\n".encode())


def stop_task(number: int, frame: object) -> None:
    raise TaskStoppedError


def main() -> None:
    """The only argument holds the settings as JSON."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, stop_task)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    extend_path(settings.python_path)
    sys.argv = sys.argv[:1]
    try:
        PythonChild(settings).serve()
    except TaskStoppedError:
        return


if __name__ == "__main__":
    main()
