"""The worker's end of one warm Python child."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Callable

import msgspec

from rota.worker.attempt import Attempt
from rota.worker.exits import limit_argv
from rota.worker.launch import Ended
from rota.worker.options import MAX_OUTPUT_BYTES, MEBIBYTE, WorkerOptions
from rota.worker.pipes import PipeReader, open_pipe
from rota.worker.processes import Processes, close_all, write_memory_file
from rota.worker.python_messages import (
    MAX_PACKET_BYTES,
    QUEUE_DESCRIPTOR,
    REPLY_DESCRIPTOR,
    Call,
    Reply,
    Settings,
)

encode = msgspec.json.Encoder().encode
decode_reply = msgspec.json.Decoder(Reply).decode


class Job:
    """One attempt in the pool."""

    __slots__ = ("attempt", "number", "packet", "process", "reference", "spooled_bytes")

    def __init__(self, attempt: Attempt, call: Call) -> None:
        self.attempt = attempt
        self.number = call.number
        self.reference = call.reference
        self.packet = encode(call)
        self.process: PythonProcess | None = None


class PythonProcess:
    """A child, the jobs that were sent to it (the first one runs), and the log of the one that runs.

    Each job is one packet in a socket whose receiving end the worker keeps open too: what the child has not
    yet received the worker can receive itself, and give to another child. The kernel hands each packet to
    one of the two, so no job runs twice.
    """

    def __init__(
        self,
        processes: Processes,
        options: WorkerOptions,
        *,
        on_reply: Callable[[PythonProcess, Reply], None],
        on_end: Callable[[PythonProcess, Ended], None],
        owner: Attempt | None = None,
    ) -> None:
        self._processes = processes
        self._on_reply = on_reply
        self._on_end = on_end
        # The attempt that has this child for itself, because it has limits of its own.
        self.owner = owner
        self.sent: deque[Job] = deque()
        # The jobs whose output has not come to its end yet.
        self._writing: deque[Job] = deque()
        self.head_began_at = 0.0
        self.final_reply: Reply | None = None
        self.done_count = 0
        self.is_ready = False
        self.is_retiring = False
        self.is_stopping = False
        self.idle_since = time.monotonic()
        self._rest = b""
        self._log_rest = b""
        self._separator = b"\0" + secrets.token_hex(12).encode() + b"\n"
        self._start(options)

    def _start(self, options: WorkerOptions) -> None:
        self._queue, self._child_queue = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        replies, child_replies = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._queue.setblocking(False)
        # The child shares the flags of its end, and wants to block there: here only the call says otherwise.
        replies.setblocking(False)
        log_reading, log_writing = open_pipe()
        settings = Settings(
            python_path=[os.path.abspath(directory) for directory in options.python_path],
            max_memory_bytes=options.python_max_memory_bytes,
            max_output_bytes=MAX_OUTPUT_BYTES,
            separator=self._separator.decode(),
        )
        limits = self.owner.limits if self.owner else {}
        argv = [sys.executable, "-P", "-m", "rota.worker.python_child", encode(settings).decode()]
        self._replies = PipeReader(replies.detach(), self._take_replies)
        self._log = PipeReader(log_reading, self._take_log)
        self.number = self._processes.spawn(
            limit_argv(argv, limits),
            self._end,
            environment={},
            descriptors={
                1: log_writing,
                2: log_writing,
                QUEUE_DESCRIPTOR: os.dup(self._child_queue.fileno()),
                REPLY_DESCRIPTOR: child_replies.detach(),
            },
            memory_bytes=int(limits.get("memory_mb", 0) * MEBIBYTE),
        )

    # -- jobs ---------------------------------------------------------------------------------------------

    def send(self, job: Job) -> bool:
        """Puts the job into the child's socket; False if there is no room now."""
        packet, descriptors = job.packet, []
        if len(packet) > MAX_PACKET_BYTES:
            descriptors = [write_memory_file(packet)]
            packet = encode(Call(job.number, job.reference, {}, {}, spooled_bytes=len(job.packet)))
        try:
            if descriptors:
                socket.send_fds(self._queue, [packet], descriptors)
            else:
                self._queue.send(packet)
        except BlockingIOError:
            return False
        finally:
            close_all(descriptors)
        if not self.sent:
            self.head_began_at = time.monotonic()
        self.sent.append(job)
        self._writing.append(job)
        job.process = self
        return True

    def take_back(self) -> list[Job]:
        """The jobs that the child has not begun; they will not run there."""
        count = 0
        while self.sent:
            try:
                packet, ancillary, _, _ = self._child_queue.recvmsg(MAX_PACKET_BYTES + 1000, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not packet:
                break
            for _, _, data in ancillary:
                close_all(memoryview(data).cast("i"))
            count += 1
        jobs = [self.sent.pop() for _ in range(count)][::-1]
        for job in jobs:
            self._writing.pop()
            job.process = None
        return jobs

    def retire(self) -> None:
        """No more jobs: the child ends after those that it has."""
        self.is_retiring = True
        self._queue.close()

    def stop(self, grace_seconds: float) -> None:
        """Ends the child and everything it has started."""
        self.is_stopping = True
        self._processes.stop(self.number, grace_seconds)

    # -- what comes back ----------------------------------------------------------------------------------

    def _take_replies(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._log.drain()
        for line in lines:
            reply = decode_reply(line)
            if reply.number:
                self._close_log_of(self.sent[0])
                self.head_began_at = time.monotonic()
            else:
                self.is_ready = True
            self._on_reply(self, reply)

    def _close_log_of(self, job: Job) -> None:
        """Makes sure that all of the job's output is in its log: it was written before the reply."""
        if self._writing and self._writing[0] is job:
            self._log.drain()
        if self._writing and self._writing[0] is job:
            # The task has closed its standard output, so its end was never marked.
            self._writing.popleft()

    def _take_log(self, data: bytes) -> None:
        *complete, rest = (self._log_rest + data).split(self._separator)
        for part in complete:
            if self._writing:
                job = self._writing.popleft()
                if part:
                    job.attempt.write(part)
        start = rest.rfind(b"\0", -len(self._separator))
        is_partial = start >= 0 and self._separator.startswith(rest[start:])
        self._log_rest = rest[start:] if is_partial else b""
        shown = rest[:start] if is_partial else rest
        if shown and self._writing:
            self._writing[0].attempt.write(shown)

    def _end(self, ended: Ended) -> None:
        self._replies.finish()
        self._log.finish()
        self._queue.close()
        self._on_end(self, ended)
        self._child_queue.close()
