"""The pool of warm Python children: who runs what, who is started, who is ended."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Mapping

import structlog

from rota.domain.work import ErrorType
from rota.worker.attempt import Attempt
from rota.worker.exits import explain_exit
from rota.worker.launch import Ended
from rota.worker.options import WorkerOptions
from rota.worker.processes import Processes
from rota.worker.python_messages import Call, Reply
from rota.worker.python_process import Job, PythonProcess

log = structlog.get_logger(__name__)

# A function is short if it takes less than this on average; calls of short ones are sent ahead.
SHORT_SECONDS = 0.001
PREFETCH = 32
# A child that has been at one call for so long does not get to the others soon: they are taken back.
SLOW_SECONDS = 0.005
IDLE_SECONDS = 60.0
# Children that end before they have said hello, in a row, until that is the task's error.
MAX_FAILED_STARTS = 3


class PythonPool:
    """One call at a time per child; short calls wait in the child's socket, from where they can be taken back."""

    def __init__(self, processes: Processes, options: WorkerOptions) -> None:
        self._processes = processes
        self._options = options
        self._most = options.python_processes or options.concurrency
        self._queue: deque[Job] = deque()
        self._children: set[PythonProcess] = set()
        self._idle: deque[PythonProcess] = deque()
        self._seconds: dict[str, float] = {}
        self._is_dispatching = False
        self._is_closing = False
        self._slow_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._failed_starts = 0
        self._emptied = asyncio.Event()

    @property
    def process_count(self) -> int:
        return len(self._children)

    def open(self) -> None:
        """Starts the first child, so that the first task finds it warm."""
        self._add_child()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._retire_idle)

    async def close(self) -> None:
        """Ends the children; by now none of them has a job."""
        self._is_closing = True
        for timer in (self._slow_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        for child in list(self._children):
            child.stop(0.0)
        while self._children:
            self._emptied.clear()
            await self._emptied.wait()

    def recycle(self) -> None:
        """Replaces every child after its present job: the code of the tasks has changed."""
        for child in list(self._children):
            self._retire(child)

    # -- jobs ---------------------------------------------------------------------------------------------

    def start(self, attempt: Attempt, call: Call) -> None:
        job = attempt.handle = Job(attempt, call)
        if attempt.limits.keys() - {"output_mb"}:
            # Limits of the kernel cannot be lifted again: the call gets a child of its own.
            child = self._add_child(owner=attempt)
            child.send(job)
            child.retire()
            return
        self._queue.append(job)
        self._dispatch_soon()

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        job: Job = attempt.handle
        if job.process is not None and job.process.owner is None:
            self._take_back(job.process)
        if job.process is not None:
            job.process.stop(grace_seconds)
        elif job in self._queue:
            self._queue.remove(job)
            attempt.end_stopped()
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if not self._is_dispatching:
            self._is_dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        while self._queue and self._idle:
            child = self._idle.popleft()
            if child.is_retiring or child.is_stopping or child.sent:
                continue
            if not self._send(child, self._queue[0]):
                self._idle.append(child)
                break
        if self._queue and self._is_short(self._queue[0]):
            self._send_ahead()
        self._grow()
        is_waited_for = self._queue or any(len(child.sent) > 1 for child in self._children)
        if self._slow_timer is None and is_waited_for:
            self._slow_timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._relieve_slow)

    def _send(self, child: PythonProcess, job: Job) -> bool:
        if not child.send(job):
            return False
        self._queue.popleft()
        return True

    def _send_ahead(self) -> None:
        """Fills up the sockets of the children that are quick, evenly."""
        quick = [
            child
            for child in self._children
            if child.sent
            and not (child.is_retiring or child.is_stopping or child.owner)
            and self._is_short(child.sent[0])
        ]
        for depth in range(2, PREFETCH + 1):
            for child in quick:
                while len(child.sent) < depth:
                    if not (self._queue and self._is_short(self._queue[0]) and self._send(child, self._queue[0])):
                        return

    def _is_short(self, job: Job) -> bool:
        return self._seconds.get(job.reference, 1.0) < SHORT_SECONDS

    def _grow(self) -> None:
        """Starts children for what waits, a few at a time, and only when every child is held up by its call:
        a short call is done before another process would have started."""
        if not self._queue or self._is_closing:
            return
        shared = [child for child in self._children if not child.owner and not child.is_retiring]
        if not all(child.is_ready and self._is_slow(child) for child in shared):
            return
        at_once = os.cpu_count() or 1
        for _ in range(min(len(self._queue), at_once, self._most - len(shared))):
            self._add_child()

    @staticmethod
    def _is_slow(child: PythonProcess) -> bool:
        return bool(child.sent) and time.monotonic() - child.head_began_at > SLOW_SECONDS

    def _add_child(self, owner: Attempt | None = None) -> PythonProcess:
        child = PythonProcess(
            self._processes, self._options, on_reply=self._take_reply, on_end=self._take_end, owner=owner
        )
        self._children.add(child)
        return child

    def _retire(self, child: PythonProcess) -> None:
        if not child.is_retiring:
            self._take_back(child)
            child.retire()

    def _take_back(self, child: PythonProcess) -> None:
        self._queue.extendleft(reversed(child.take_back()))
        if not child.sent and child.is_ready and not child.is_retiring:
            self._idle.append(child)

    def _relieve_slow(self) -> None:
        self._slow_timer = None
        for child in self._children:
            if len(child.sent) > 1 and self._is_slow(child):
                self._seconds[child.sent[0].reference] = SLOW_SECONDS
                self._take_back(child)
        self._dispatch_soon()

    def _retire_idle(self) -> None:
        """Lets go of children that had nothing to do for a while; one stays."""
        now = time.monotonic()
        idle = [child for child in self._children if not child.sent and now - child.idle_since > IDLE_SECONDS]
        for child in idle[: max(0, len(self._children) - 1)]:
            self._retire(child)
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._retire_idle)

    # -- what comes back ----------------------------------------------------------------------------------

    def _take_reply(self, child: PythonProcess, reply: Reply) -> None:
        if reply.number == 0:
            self._failed_starts = 0
        else:
            self._settle(child, reply)
        if reply.is_last or child.done_count >= self._options.python_max_tasks:
            self._retire(child)
        if not child.sent and not child.is_retiring:
            child.idle_since = time.monotonic()
            self._idle.append(child)
        if self._queue:
            self._dispatch_soon()

    def _settle(self, child: PythonProcess, reply: Reply) -> None:
        job = child.sent[0]
        if job.attempt.stop_reason is not None:
            # It is being killed: what counts is that its processes are gone, which the end will tell.
            return
        if child.owner is not None:
            # What it used is known when it has ended, which it does now.
            child.final_reply = reply
            return
        child.sent.popleft()
        child.done_count += 1
        if reply.is_refused:
            job.process = None
            self._queue.appendleft(job)
            return
        before = self._seconds.get(job.reference, reply.seconds)
        self._seconds[job.reference] = 0.8 * before + 0.2 * reply.seconds
        report_reply(job.attempt, reply, {"cpu_seconds": round(reply.cpu_seconds, 6)})

    def _take_end(self, child: PythonProcess, ended: Ended) -> None:
        self._children.discard(child)
        unbegun = child.take_back()
        if child.owner is not None:
            for job in [*child.sent, *unbegun]:
                end_job(job.attempt, ended, child.final_reply)
        else:
            self._queue.extendleft(reversed(unbegun))
            for job in child.sent:
                end_job(job.attempt, ended, None)
            if not (child.is_ready or child.is_stopping or self._is_closing):
                self._note_failed_start(ended)
        if not self._children:
            self._emptied.set()
        self._dispatch_soon()

    def _note_failed_start(self, ended: Ended) -> None:
        """A child ended before it could say hello. A few times in a row, and the waiting calls fail for it."""
        self._failed_starts += 1
        reason = ended.start_error or explain_exit(ended, {})[1]
        log.error("python_process_failed", reason=reason, failures=self._failed_starts)
        if self._failed_starts < MAX_FAILED_STARTS:
            return
        self._failed_starts = 0
        waiting, self._queue = self._queue, deque()
        for job in waiting:
            job.attempt.fail(ErrorType.BAD_TASK, f"no Python process can be started on this worker: {reason}")


def report_reply(attempt: Attempt, reply: Reply, usage: Mapping[str, float]) -> None:
    """Says what the function returned, or how it failed."""
    if reply.error_type is not None:
        attempt.fail(ErrorType(reply.error_type), reply.error, exit_code=reply.exit_code, usage=usage)
    elif attempt.assignment.spec.get("output") == "none":
        attempt.succeed(usage=usage)
    else:
        attempt.succeed(reply.output, usage=usage)


def end_job(attempt: Attempt, ended: Ended, reply: Reply | None) -> None:
    """The child is gone, before it has answered or (a child for one call only) after."""
    usage = {"cpu_seconds": ended.cpu_seconds, "peak_memory_bytes": float(ended.peak_memory_bytes)}
    if ended.is_lost:
        attempt.fail(ErrorType.WORKER_LOST, "the launcher of this worker died; its processes were killed")
    elif attempt.stop_reason is not None:
        attempt.end_stopped(exit_code=ended.exit_code, usage=usage, is_unconfirmed=not ended.is_verified)
    elif reply is not None and not ended.is_out_of_memory:
        report_reply(attempt, reply, usage)
    elif ended.start_error:
        attempt.fail(ErrorType.BAD_TASK, ended.start_error)
    else:
        error_type, error = explain_exit(ended, attempt.limits)
        sentence = f"the Python process ended in the middle of the task: {error}"
        attempt.fail(error_type, sentence, exit_code=ended.exit_code, usage=usage)
