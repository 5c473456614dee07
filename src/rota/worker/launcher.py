"""The launcher: a small process beside the worker that starts, watches and kills every program for it.

It is the sub-reaper of everything it starts, so no descendant can leave its tree; and when the worker's end of
the socket closes, however the worker ended, it kills that whole tree and goes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time

from rota.worker import launch, proc
from rota.worker.launch import Ended, Oversize, Spawn, Stop

DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STRAY_GRACE_SECONDS = 1.0
ORPHAN_GRACE_SECONDS = 2.0
# After KILL only an uninterruptible system call keeps a process; longer than this is reported as unconfirmed.
KILL_PATIENCE_SECONDS = 10.0
MEMORY_SAMPLE_SECONDS = 0.05
FIRST_CHECK_SECONDS = 0.002
SLOWEST_CHECK_SECONDS = 0.05
ANCILLARY_BYTES = socket.CMSG_SPACE(launch.MAX_DESCRIPTORS * 4)


class StartError(Exception):
    """The program cannot be started; the message says why."""


class Program:
    """One started program, until it and all it started are gone."""

    __slots__ = (
        "check_at",
        "check_seconds",
        "exit_code",
        "give_up_at",
        "is_ended",
        "is_out_of_memory",
        "kill_at",
        "memory_bytes",
        "number",
        "pid",
        "started_ticks",
        "usage",
    )

    def __init__(self, number: int, pid: int, memory_bytes: int) -> None:
        self.number = number
        self.pid = pid
        self.memory_bytes = memory_bytes
        self.started_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * proc.TICKS_PER_SECOND) - 1
        self.exit_code: int | None = None
        self.usage: resource.struct_rusage | None = None
        self.is_ended = False
        self.is_out_of_memory = False
        self.kill_at = 0.0
        self.give_up_at = 0.0
        self.check_at = 0.0
        self.check_seconds = FIRST_CHECK_SECONDS

    def to_event(self, *, is_verified: bool) -> Ended:
        usage = self.usage
        return Ended(
            number=self.number,
            exit_code=self.exit_code,
            cpu_seconds=usage.ru_utime + usage.ru_stime if usage else 0.0,
            peak_memory_bytes=usage.ru_maxrss * 1024 if usage else 0,
            is_out_of_memory=self.is_out_of_memory,
            is_verified=is_verified,
        )


class Launcher:
    """Serves one worker over one socket until the worker is gone."""

    def __init__(self, connection: socket.socket, token: str) -> None:
        self._connection = connection
        self._token = token
        self._home = os.getcwd()
        self._environment = dict(os.environ)
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._children = proc.Children()
        self._by_pid: dict[int, Program] = {}
        self._by_number: dict[int, Program] = {}
        self._stopping: dict[int, Program] = {}
        self._measured: dict[int, Program] = {}
        self._measure_at = 0.0
        # Orphans that came to us: whose they are by their marker (0: they hide it), and since when they run.
        self._adopted: dict[int, tuple[int, int]] = {}
        self._events: list[Ended] = []

    # -- the loop -----------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Runs until the socket closes, then kills what is left."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poller = select.poll()
        poller.register(wake_read, select.POLLIN)
        poller.register(self._connection, select.POLLIN)
        try:
            while True:
                ready = [descriptor for descriptor, _ in poller.poll(self._milliseconds_to_wait())]
                if wake_read in ready:
                    os.read(wake_read, 4096)
                    self._reap()
                if self._connection.fileno() in ready and not self._receive():
                    break
                self._measure()
                self._check_stopping()
                self._send_events()
        except (BrokenPipeError, ConnectionResetError):
            pass
        self._kill_everything()

    def _milliseconds_to_wait(self) -> float | None:
        due = [program.check_at for program in self._stopping.values()]
        if self._measured:
            due.append(self._measure_at)
        if not due:
            return None
        return max(0.0, min(due) - time.monotonic()) * 1000 + 0.5

    def _receive(self) -> bool:
        """Handles what has arrived; False when the worker is gone."""
        for _ in range(32):
            try:
                packet, ancillary, _, _ = self._connection.recvmsg(
                    launch.MAX_PACKET_BYTES + 1000, ANCILLARY_BYTES, socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            if not packet:
                return False
            descriptors = [number for _, _, data in ancillary for number in memoryview(data).cast("i")]
            try:
                self._handle(packet, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        return True

    def _handle(self, packet: bytes, descriptors: list[int]) -> None:
        request = launch.decode_request(packet)
        if isinstance(request, Oversize):
            request = launch.decode_request(os.pread(descriptors[-1], request.size, 0))
        if isinstance(request, Spawn):
            self._spawn(request, descriptors)
        elif isinstance(request, Stop):
            self._stop(request)

    def _send_events(self) -> None:
        while self._events:
            batch = self._events[:100]
            self._connection.sendall(launch.encode(batch))
            del self._events[:100]

    # -- starting -----------------------------------------------------------------------------------------

    def _spawn(self, request: Spawn, descriptors: list[int]) -> None:
        environment = {**self._environment, **request.environment}
        environment[launch.MARKER] = f"{self._token}.{request.number}"
        actions = [(os.POSIX_SPAWN_DUP2, self._null, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, descriptors[index], child) for child, index in request.descriptors]
        try:
            pid = self._start(request, environment, actions)
        except StartError as error:
            self._events.append(Ended(request.number, start_error=str(error)))
            return
        program = Program(request.number, pid, request.memory_bytes)
        self._by_pid[pid] = self._by_number[request.number] = program
        if request.memory_bytes:
            self._measured[request.number] = program

    def _start(self, request: Spawn, environment: dict[str, str], actions: list[tuple[int, int, int]]) -> int:
        """Starts the program in its directory, which for that moment is ours; answers its number."""
        if request.working_directory:
            try:
                os.chdir(request.working_directory)
            except (OSError, ValueError) as error:
                where = f"working_directory {request.working_directory!r}"
                raise StartError(f"cannot change to {where}: {read_reason(error)}") from None
        try:
            return os.posix_spawn(
                find_program(request.argv[0], environment.get("PATH", os.defpath)),
                request.argv,
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=DEFAULT_SIGNALS,
            )
        except (OSError, ValueError) as error:
            raise StartError(f"cannot start {request.argv[0]!r}: {read_reason(error)}") from None
        finally:
            if request.working_directory:
                os.chdir(self._home)

    # -- ending -------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Collects every process that has ended, our own and adopted ones alike."""
        ended = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._adopted.pop(pid, None)
            program = self._by_pid.pop(pid, None)
            if program is not None:
                program.is_ended = True
                program.exit_code = os.waitstatus_to_exitcode(status)
                program.usage = usage
                ended.append(program)
        if ended:
            self._adopt_orphans()
        for program in ended:
            if program.number not in self._stopping:
                self._end_normally(program)
        for program in self._stopping.values():
            program.check_at = 0.0

    def _end_normally(self, program: Program) -> None:
        """The program ended by itself; what it left running in the background does not stay."""
        if self._list_tree(program):
            self._begin_stop(program, STRAY_GRACE_SECONDS)
        else:
            self._forget(program, is_verified=True)

    def _forget(self, program: Program, *, is_verified: bool) -> None:
        for table in (self._by_number, self._stopping, self._measured):
            table.pop(program.number, None)
        if self._by_pid.get(program.pid) is program:
            del self._by_pid[program.pid]
        self._events.append(program.to_event(is_verified=is_verified))

    def _adopt_orphans(self) -> None:
        """Notes which of our children we did not start: their parents died, and they came to us."""
        own = self._children.list_of(os.getpid())
        if len(own) == len(self._by_pid) + len(self._adopted):
            return
        for pid in own:
            if pid in self._by_pid or pid in self._adopted:
                continue
            token, _, number = proc.read_marker(pid, launch.MARKER).partition(".")
            stat = proc.read_stat(pid)
            owner = int(number) if token == self._token and number.isdigit() else 0
            if owner and owner not in self._by_number:
                send_signal(pid, signal.SIGKILL)
            self._adopted[pid] = (owner, stat[2] if stat else 0)

    def _list_tree(self, program: Program) -> list[int]:
        """Every process of the program that still lives: its descendants, and orphans that are its own.

        An orphan that hides its marker counts as the program's if it was started during the program's life.
        """
        roots = [] if program.is_ended else [program.pid]
        for pid, (owner, started_ticks) in self._adopted.items():
            if owner == program.number or (owner == 0 and started_ticks >= program.started_ticks):
                roots.append(pid)
        return self._children.list_trees(roots)

    # -- killing ------------------------------------------------------------------------------------------

    def _stop(self, request: Stop) -> None:
        program = self._by_number.get(request.number)
        if program is None:
            return
        if program.number in self._stopping:
            program.kill_at = min(program.kill_at, time.monotonic() + request.grace_seconds)
            program.check_at = 0.0
            return
        self._adopt_orphans()
        self._begin_stop(program, request.grace_seconds)

    def _begin_stop(self, program: Program, grace_seconds: float) -> None:
        now = time.monotonic()
        program.kill_at = now + grace_seconds
        program.give_up_at = program.kill_at + KILL_PATIENCE_SECONDS
        program.check_at = now + FIRST_CHECK_SECONDS
        self._stopping[program.number] = program
        if grace_seconds > 0:
            self._signal_tree(program, self._list_tree(program), signal.SIGTERM)
        else:
            program.check_at = 0.0

    def _signal_tree(self, program: Program, tree: list[int], number: int) -> None:
        if not program.is_ended:
            with contextlib.suppress(OSError):
                os.killpg(program.pid, number)
        for pid in tree:
            send_signal(pid, number)
            if number == signal.SIGTERM:
                # A stopped process gets to see the signal only when it goes on.
                send_signal(pid, signal.SIGCONT)

    def _check_stopping(self) -> None:
        """Looks at every program being stopped whose time to be looked at has come."""
        now = time.monotonic()
        due = [program for program in self._stopping.values() if program.check_at <= now]
        if not due:
            return
        self._adopt_orphans()
        for program in due:
            tree = self._list_tree(program)
            if not tree:
                self._forget(program, is_verified=True)
                continue
            if now >= program.give_up_at:
                self._forget(program, is_verified=False)
                continue
            if now >= program.kill_at:
                self._signal_tree(program, tree, signal.SIGKILL)
            wait = program.check_seconds = min(program.check_seconds * 2, SLOWEST_CHECK_SECONDS)
            program.check_at = now + wait
            if now < program.kill_at:
                program.check_at = min(program.check_at, program.kill_at)

    def _measure(self) -> None:
        """Samples the memory of programs that have a limit, and kills the tree that is over it."""
        if not self._measured or time.monotonic() < self._measure_at:
            return
        for program in list(self._measured.values()):
            held = sum(map(proc.read_resident_bytes, self._list_tree(program)))
            if held > program.memory_bytes:
                program.is_out_of_memory = True
                del self._measured[program.number]
                self._stop(Stop(program.number, 0.0))
        self._measure_at = time.monotonic() + MEMORY_SAMPLE_SECONDS

    def _kill_everything(self) -> None:
        """The worker is gone: nobody can report what these processes do, so they end."""
        kill_at = time.monotonic() + ORPHAN_GRACE_SECONDS
        number = signal.SIGTERM
        signalled: set[int] = set()
        while tree := self._children.list_trees(self._children.list_of(os.getpid())):
            if number == signal.SIGTERM and time.monotonic() >= kill_at:
                number = signal.SIGKILL
            for pid in tree:
                if number == signal.SIGKILL or pid not in signalled:
                    send_signal(pid, number)
            signalled.update(tree)
            select.select([], [], [], 0.01)
            self._reap()


def read_reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def find_program(name: str, path: str) -> str:
    """The file to execute for the first word of a command; as it stands if it names a path or is not found."""
    if "/" in name:
        return name
    for directory in path.split(":"):
        candidate = f"{directory or '.'}/{name}"
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return name


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
