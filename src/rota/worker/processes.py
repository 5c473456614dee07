"""The worker's side of the launcher: start programs, stop them, hear of their end."""

from __future__ import annotations

import asyncio
import functools
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import structlog

from rota.domain.errors import Unavailable
from rota.worker import launch, proc
from rota.worker.launch import Ended, Oversize, Spawn, Stop

log = structlog.get_logger(__name__)

# What the worker keeps to itself: its own settings and the usual places of credentials.
PRIVATE_PREFIXES = ("ROTA_",)
PRIVATE_NAMES = frozenset({"DATABASE_URL", "REDIS_URL", "PGPASSWORD", "NOTIFY_SOCKET", "TRACEPARENT"})

OnEnd = Callable[[Ended], None]


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a task inherits from the worker."""
    return {
        name: value
        for name, value in environment.items()
        if name not in PRIVATE_NAMES and not name.startswith(PRIVATE_PREFIXES)
    }


@functools.cache
def lift_file_limit() -> int:
    """Lets this process open as many files as it may: every running task takes a few. Answers what its limit was
    before, which is that of the programs it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


class Processes:
    """Owns the launcher. Every program started ends with exactly one call of its `on_end`."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = clean_environment(os.environ if environment is None else environment)
        self._guard: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._token = ""
        self._on_end: dict[int, OnEnd] = {}
        self._last_number = 0
        self._outbox: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._is_writing = False
        self._is_closing = False

    @property
    def guard_pid(self) -> int | None:
        """The process above the launcher."""
        return self._guard.pid if self._guard else None

    def open(self) -> None:
        """Starts the launcher; must be called with the event loop running."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._token = secrets.token_hex(8)
        files = lift_file_limit()
        with theirs:
            self._guard = subprocess.Popen(
                # -P: a module of the task author's must not take the place of ours.
                [sys.executable, "-P", "-m", "rota.worker.guard", str(theirs.fileno()), self._token, str(files)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._connection = ours
        self._is_writing = self._is_closing = False
        asyncio.get_running_loop().add_reader(ours, self._receive)

    async def close(self) -> None:
        """Ends the launcher, and with it whatever still runs."""
        self._is_closing = True
        guard = self._guard
        self._disconnect()
        if guard is not None:
            await asyncio.to_thread(guard.wait)

    def spawn(
        self,
        argv: Sequence[str],
        on_end: OnEnd,
        *,
        environment: Mapping[str, str],
        descriptors: Mapping[int, int],
        working_directory: str = "",
        memory_bytes: int = 0,
    ) -> int:
        """Starts a program and returns its number. `descriptors`: the child's number → ours, which we then close.

        A program that cannot be started ends at once with `start_error`.
        """
        self._last_number += 1
        number = self._last_number
        passed = list(dict.fromkeys(descriptors.values()))
        request = Spawn(
            number=number,
            argv=list(argv),
            environment=dict(environment),
            working_directory=working_directory,
            descriptors=[(child, passed.index(ours)) for child, ours in descriptors.items()],
            memory_bytes=memory_bytes,
        )
        try:
            packet = launch.encode(request)
        except UnicodeEncodeError as error:
            close_all(passed)
            loop = asyncio.get_running_loop()
            loop.call_soon(on_end, Ended(number, start_error=f"cannot start: {error}"))
            return number
        if len(packet) > launch.MAX_PACKET_BYTES:
            passed.append(write_memory_file(packet))
            packet = launch.encode(Oversize(len(packet)))
        if self._connection is None:
            if self._is_closing:
                close_all(passed)
                raise Unavailable("the worker is closing")
            self.open()
        self._on_end[number] = on_end
        self._send(packet, tuple(passed))
        return number

    def stop(self, number: int, grace_seconds: float) -> None:
        """TERM, KILL after the grace; the end is reported as ever. A second call may shorten the grace."""
        if number in self._on_end:
            self._send(launch.encode(Stop(number, grace_seconds)), ())

    # -- the socket ---------------------------------------------------------------------------------------

    def _send(self, packet: bytes, descriptors: tuple[int, ...]) -> None:
        self._outbox.append((packet, descriptors))
        if not self._is_writing:
            self._flush()

    def _flush(self) -> None:
        connection = self._connection
        loop = asyncio.get_running_loop()
        while self._outbox and connection is not None:
            packet, descriptors = self._outbox[0]
            try:
                socket.send_fds(connection, [packet], descriptors)
            except BlockingIOError:
                if not self._is_writing:
                    self._is_writing = True
                    loop.add_writer(connection, self._flush)
                return
            except OSError:
                # The launcher is gone: the reader notices, and ends what was started.
                break
            self._outbox.popleft()
            close_all(descriptors)
        if self._is_writing and connection is not None:
            self._is_writing = False
            loop.remove_writer(connection)

    def _receive(self) -> None:
        connection = self._connection
        if connection is None:
            return
        for _ in range(16):
            try:
                packet = connection.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._lose_launcher()
                return
            for event in launch.decode_event(packet):
                on_end = self._on_end.pop(event.number, None)
                if on_end is not None:
                    on_end(event)

    def _disconnect(self) -> None:
        if self._connection is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._connection)
            if self._is_writing:
                loop.remove_writer(self._connection)
            self._connection.close()
            self._connection = None
        for _, descriptors in self._outbox:
            close_all(descriptors)
        self._outbox.clear()

    def _lose_launcher(self) -> None:
        """The launcher died: nobody watches its programs any more, so they are found by their marker and killed."""
        log.error("launcher_lost", running=len(self._on_end))
        self._disconnect()
        orphaned, self._on_end = self._on_end, {}
        guard, token = self._guard, self._token

        def sweep() -> bool:
            if guard is not None:
                guard.wait()
            return kill_marked(token)

        def finish(swept: asyncio.Future[bool]) -> None:
            for number, on_end in orphaned.items():
                on_end(Ended(number, is_verified=swept.result(), is_lost=True))

        asyncio.get_running_loop().run_in_executor(None, sweep).add_done_callback(finish)


def kill_marked(token: str, *, patience_seconds: float = 10.0) -> bool:
    """Kills every process that carries the token in its marker; True once none is left."""
    give_up_at = time.monotonic() + patience_seconds
    while time.monotonic() < give_up_at:
        marked = [pid for pid in proc.list_processes() if proc.read_marker(pid, launch.MARKER).startswith(f"{token}.")]
        if not marked:
            return True
        for pid in marked:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                return False
    return False


def write_memory_file(content: bytes) -> int:
    """A file descriptor from which the content can be read, without a file."""
    descriptor = os.memfd_create("rota", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
