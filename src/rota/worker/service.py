"""The worker itself: claims, executes, reports, and leaves in good order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from rota import __version__
from rota.domain.errors import RotaError
from rota.domain.work import (
    Assignment,
    AttemptKey,
    ErrorType,
    Finished,
    Registration,
    RenewReply,
    Report,
    ReportReply,
    WorkSource,
)
from rota.outbound.backoff import Backoff
from rota.worker.attempt import Attempt, Executor, StopReason
from rota.worker.executors import build_executors
from rota.worker.logs import AttemptLog
from rota.worker.options import WorkerOptions
from rota.worker.outbox import Outbox, count_finished
from rota.worker.processes import Processes
from rota.worker.session import Session
from rota.worker.slots import Slots

log = structlog.get_logger(__name__)

# How many attempts must have ended for a second report to be sent while the first is still under way.
OVERLAP_SHARE = 4
# After the drain time, KILL follows TERM within the grace; this much later even that is over.
KILL_MARGIN_SECONDS = 15.0


class Worker:
    """Runs until `stop` is called; see `docs/explanation/worker.md` for how its parts play together."""

    def __init__(
        self,
        source: WorkSource,
        options: WorkerOptions | None = None,
        *,
        executors: Mapping[str, Executor] | None = None,
    ) -> None:
        self.options = options or WorkerOptions()
        self._source = source
        self._processes = Processes(self.options.environment)
        if executors is None:
            executors = build_executors(self.options, self._processes)
        kinds = self.options.kinds or tuple(executors)
        self._executors = {kind: executor for kind, executor in executors.items() if kind in kinds}
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._handed_back: list[AttemptKey] = []
        self._stopping = asyncio.Event()
        self._killing = asyncio.Event()
        self._emptied = asyncio.Event()
        self._calm = asyncio.Event()
        # Cancels that came before the assignment that they are for.
        self._cancelled_early: set[AttemptKey] = set()
        self._is_draining = False
        self._in_flight: set[asyncio.Task[None]] = set()
        self.slots = Slots(self.options.concurrency)
        self.finished_count = 0
        self._outbox = Outbox(
            flush_seconds=self.options.log_flush_seconds, max_log_bytes=self.options.max_buffered_log_bytes
        )
        self.session = Session(
            source,
            Registration(
                name=self.options.name,
                hostname=self.options.name,
                queues=self.options.queues,
                kinds=tuple(self._executors),
                labels=self.options.labels,
                concurrency=self.options.concurrency,
                version=__version__,
            ),
            list_held=lambda: list(self._attempts),
            on_orders=self._obey,
        )

    # -- life ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Works until `stop`; returns when nothing runs any more and the source knows."""
        self._processes.open()
        background: list[asyncio.Task[None]] = []
        try:
            for executor in set(self._executors.values()):
                await executor.open()
            if not await self._register_or_stop():
                return
            background = [
                asyncio.create_task(loop)
                for loop in (
                    self.session.keep_alive(),
                    self.session.hear_orders(),
                    self._send_reports(),
                )
            ]
            claiming = asyncio.create_task(self._claim())
            await self._stopping.wait()
            await self._drain(claiming)
            await self._say_farewell()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            for executor in set(self._executors.values()):
                await executor.close()
            await self._processes.close()

    def stop(self) -> None:
        """Ends the worker: running tasks get the drain time. Called again: now."""
        if self._stopping.is_set():
            self._killing.set()
        self._stopping.set()
        self._calm.set()

    def cancel_now(self) -> None:
        """Ends the worker at once: what runs is killed and handed back."""
        self._killing.set()
        self._stopping.set()
        self._calm.set()

    @property
    def is_healthy(self) -> bool:
        """True while the source answers; a worker that waits for it to return is alive but not healthy."""
        return self.session.is_registered and self.session.is_reachable

    async def _register_or_stop(self) -> bool:
        registering = asyncio.create_task(self.session.register())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({registering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        is_registered = registering.done()
        for task in (registering, stopping):
            task.cancel()
        await asyncio.gather(registering, stopping, return_exceptions=True)
        return is_registered

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        """Lets running attempts end, then ends them; what did not get to its end goes back to the queue."""
        log.info("draining", running=len(self._attempts), drain_seconds=self.options.drain_seconds)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        if not await self._wait_until_empty(self.options.drain_seconds, self._killing):
            grace_seconds = 0.0 if self._killing.is_set() else self.options.grace_seconds
            self._hand_back(grace_seconds)
            if not await self._wait_until_empty(grace_seconds + KILL_MARGIN_SECONDS, self._killing):
                self._hand_back(0.0)
                await self._wait_until_empty(KILL_MARGIN_SECONDS, None)

    async def _wait_until_empty(self, seconds: float, cut_short: asyncio.Event | None) -> bool:
        """True once no attempt executes; False after the time, or as soon as `cut_short` is set."""
        if self.slots.running == 0:
            return True
        if cut_short is not None and cut_short.is_set():
            return False
        self._emptied.clear()
        waits = [asyncio.create_task(self._emptied.wait())]
        if cut_short is not None:
            waits.append(asyncio.create_task(cut_short.wait()))
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return self.slots.running == 0

    def _hand_back(self, grace_seconds: float) -> None:
        for attempt in list(self._attempts.values()):
            if not attempt.is_finished:
                self._stop_attempt(attempt, StopReason.HAND_BACK, grace_seconds)

    async def _say_farewell(self) -> None:
        """Delivers the last reports and signs off, as long as the source can be reached in reasonable time."""
        try:
            async with asyncio.timeout(self.options.farewell_seconds):
                while len(self._outbox) or self._in_flight:
                    self._calm.clear()
                    await self._calm.wait()
                await self._source.leave(self.session.identity, self._handed_back)
        except TimeoutError:
            log.warning("left_without_farewell", undelivered=len(self._outbox))
        except RotaError as error:
            log.warning("left_without_farewell", error=error.detail, undelivered=len(self._outbox))

    # -- orders -------------------------------------------------------------------------------------------

    def _obey(self, reply: RenewReply) -> None:
        if reply.is_draining != self._is_draining:
            log.info("drain_ordered" if reply.is_draining else "drain_lifted")
            self._is_draining = reply.is_draining
            self._calm.set()
        self._cancelled_early = {key for key in reply.cancel if key not in self._attempts}
        for keys, reason in ((reply.lost, StopReason.LOST), (reply.cancel, StopReason.CANCEL)):
            for key in keys:
                attempt = self._attempts.get(key)
                if attempt is not None and not attempt.is_finished:
                    self._stop_attempt(attempt, reason, self.options.grace_seconds)

    def _stop_attempt(self, attempt: Attempt, reason: StopReason, grace_seconds: float) -> None:
        """Tells the executor to end the attempt. The first reason stays, except that a worker which
        leaves does not report the timeout or cancel that it could not see through."""
        if attempt.stop_reason is None:
            attempt.stop_reason = reason
        elif reason is not StopReason.HAND_BACK:
            return
        self._executors[attempt.assignment.kind].stop(attempt, grace_seconds)

    def _stop_flood(self, attempt: Attempt) -> None:
        self._stop_attempt(attempt, StopReason.OUTPUT_LIMIT, self.options.grace_seconds)

    # -- attempts -----------------------------------------------------------------------------------------

    def _start(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            key = AttemptKey(assignment.task_run_id, assignment.attempt)
            if key in self._attempts:
                continue
            attempt = Attempt(assignment, self._open_log(key, assignment), on_end=self._end, on_flood=self._stop_flood)
            self._attempts[key] = attempt
            self.slots.take()
            if self._stopping.is_set() or key in self._cancelled_early:
                attempt.stop_reason = StopReason.CANCEL if key in self._cancelled_early else StopReason.HAND_BACK
                attempt.end_stopped()
            else:
                self._start_one(attempt)

    def _start_one(self, attempt: Attempt) -> None:
        assignment = attempt.assignment
        executor = self._executors.get(assignment.kind)
        if executor is None:
            offered = ", ".join(sorted(self._executors))
            attempt.fail(ErrorType.BAD_TASK, f"this worker executes {offered}; it was given {assignment.kind!r}")
            return
        if assignment.timeout_seconds:
            attempt.timer = asyncio.get_running_loop().call_later(
                assignment.timeout_seconds,
                self._stop_attempt,
                attempt,
                StopReason.TIMEOUT,
                self.options.grace_seconds,
            )
        try:
            executor.start(attempt)
        except Exception as error:
            log.exception("start_failed", task_run_id=assignment.task_run_id, kind=assignment.kind)
            attempt.fail(ErrorType.BAD_TASK, f"the task could not be started: {type(error).__name__}: {error}")

    def _open_log(self, key: AttemptKey, assignment: Assignment) -> AttemptLog:
        return AttemptLog(
            key,
            head_bytes=self.options.max_log_head_bytes,
            tail_bytes=self.options.max_log_tail_bytes,
            on_dirty=self._outbox.note_log,
            secrets=assignment.secrets,
        )

    def _end(self, attempt: Attempt, finished: Finished) -> None:
        """Called once by each attempt. Its lease is kept until the source has taken the result."""
        if attempt.timer is not None:
            attempt.timer.cancel()
        self.finished_count += 1
        if attempt.stop_reason is StopReason.HAND_BACK and finished.status == "cancelled":
            self._outbox.add_last_words(attempt.log)
            self._handed_back.append(attempt.key)
            del self._attempts[attempt.key]
            self._give_back(1)
        else:
            self._outbox.add_end(attempt.log, finished)

    def _give_back(self, count: int) -> None:
        """Frees slots. That of an ended attempt is free only when its result leaves, for until then the source
        counts it as ours, and must not be asked for more than the concurrency."""
        self.slots.give_back(count)
        if self.slots.running == 0:
            self._emptied.set()

    # -- claiming and reporting ---------------------------------------------------------------------------

    async def _claim(self) -> None:
        """Asks for work while nothing is to be reported: reports bring new work along themselves."""
        backoff = Backoff()
        while not self._stopping.is_set():
            await self.slots.wait_until_free()
            while self._is_draining or len(self._outbox) or self._in_flight:
                self._calm.clear()
                await self._calm.wait()
                if self._stopping.is_set():
                    return
            if self.slots.free > 0:
                await self.session.attempt(self._claim_once, backoff)

    async def _claim_once(self) -> None:
        wanted = self.slots.promise_all()
        assignments: Sequence[Assignment] = ()
        try:
            assignments = await self._source.claim(
                self.session.identity, limit=wanted, wait_seconds=self.options.claim_wait_seconds
            )
        finally:
            self.slots.redeem(wanted)
        self._start(assignments)
        if not assignments:
            await asyncio.sleep(0)

    async def _send_reports(self) -> None:
        """Sends what is pending as soon as it may be sent, for as long as the worker lives."""
        try:
            while True:
                await self._outbox.changed.wait()
                self._outbox.changed.clear()
                # What else ends in this turn of the loop rides along.
                await asyncio.sleep(0)
                while self._may_send() and (batch := self._outbox.take_batch()):
                    self._give_back(count_finished(batch))
                    self._in_flight.add(asyncio.create_task(self._deliver(batch)))
        finally:
            for task in self._in_flight:
                task.cancel()

    def _may_send(self) -> bool:
        """One report at a time, and a second when much has ended meanwhile: then neither the source nor the
        slots idle, and few round trips carry much."""
        if not self._in_flight:
            return len(self._outbox) > 0
        enough = max(2, self.options.concurrency // OVERLAP_SHARE)
        return len(self._in_flight) == 1 and self._outbox.finished >= enough and self.session.is_reachable

    async def _deliver(self, batch: Sequence[Report]) -> None:
        """Sends one batch until it is answered."""
        backoff = Backoff()
        while not await self.session.attempt(lambda: self._report(batch), backoff):
            pass
        self._outbox.confirm(batch)
        task = asyncio.current_task()
        if task is not None:
            self._in_flight.discard(task)
        self._calm.set()

    async def _report(self, batch: Sequence[Report]) -> None:
        await self.session.ensure_fresh()
        wanted = 0 if self._is_draining or self._stopping.is_set() else self.slots.promise_all()
        try:
            reply = await self._source.report(self.session.identity, batch, claim=wanted)
        finally:
            self.slots.redeem(wanted)
        self.session.is_reachable = True
        self._settle(batch, reply)
        self._start(reply.assignments)

    def _settle(self, batch: Sequence[Report], reply: ReportReply) -> None:
        """Forgets what the source has taken note of, and says what it refused."""
        for report, result in zip(batch, reply.results, strict=False):
            if isinstance(report, Finished):
                self._attempts.pop(AttemptKey(report.task_run_id, report.attempt), None)
            if not result.is_accepted:
                log.warning(
                    "report_refused",
                    task_run_id=report.task_run_id,
                    attempt=report.attempt,
                    code=result.code,
                    detail=result.detail,
                )
