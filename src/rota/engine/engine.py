"""The facade: lists the verbs, gives each its transaction, and waits where there is nothing to do yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from rota.domain.errors import Conflict, NotFound, RotaError
from rota.domain.spec import WorkflowSpec
from rota.domain.work import (
    Assignment,
    AttemptKey,
    Registered,
    Registration,
    RenewReply,
    Report,
    ReportReply,
    ReportResult,
    WorkerIdentity,
)
from rota.engine import (
    annotate,
    approve,
    arming,
    backlog,
    cancel,
    claim,
    complete,
    define,
    due,
    expand,
    explain,
    follow,
    held,
    jobs,
    mark,
    prune,
    queueing,
    reap,
    renew,
    rerun,
    retry,
    submit,
)
from rota.engine.annotate import Annotation
from rota.engine.approve import Decision
from rota.engine.backlog import Capacity
from rota.engine.cancel import CancelReport
from rota.engine.claim import ClaimResult
from rota.engine.core import Core, EngineOptions
from rota.engine.custody import Custody
from rota.engine.define import Defined
from rota.engine.explain import Explanation
from rota.engine.gather import Gatherer
from rota.engine.jobs import CreatedJob
from rota.engine.kinds import DUE_HANDLERS, STARTERS
from rota.engine.mark import Mark
from rota.engine.polls import Polls
from rota.engine.rerun import Rerun, RerunReport
from rota.engine.retry import RetryReport
from rota.engine.submit import RunRequest, SubmittedRun
from rota.engine.time_verbs import TimeVerbs
from rota.engine.vault import Vault
from rota.engine.watch import Watch
from rota.engine.worker_calls import WorkerAnswer, WorkerCall, answer_calls
from rota.observability.metrics import Metrics
from rota.store.database import Database, Fence, Transaction
from rota.store.definitions import WorkflowRow
from rota.store.queues import QueueSettings
from rota.store.wakeups import Topic

# Wake-ups may get lost with a process that dies; whoever waits looks again after this time.
POLL_SECONDS = 2.0
# From so many reports at once on, claims get a transaction of their own.
LARGE_REPORT = 64


class Engine(TimeVerbs):
    """Everything that changes state. Safe to use from any number of processes on one database."""

    def __init__(
        self,
        database: Database,
        options: EngineOptions | None = None,
        *,
        metrics: Metrics | None = None,
        vault: Vault | None = None,
    ) -> None:
        self.database = database
        self._metrics = metrics
        self._core = Core(database, options or EngineOptions(), Watch(metrics) if metrics else None, vault or Vault())
        self._core.starters, self._core.due_handlers = STARTERS, DUE_HANDLERS
        self.polls = Polls(self._core)
        self.custody = Custody(database, self._core)
        self._core.follow_up.work = self.follow
        lanes = 1 if database.is_sqlite else 2
        self._worker_calls: Gatherer[WorkerCall, WorkerAnswer] = Gatherer(
            self._serve_workers, lanes=lanes, weigh=lambda call: 1 + len(call.reports) + call.limit
        )
        self._submissions: Gatherer[RunRequest, SubmittedRun] = Gatherer(self.submit_many, lanes=lanes)
        self._jobs: Gatherer[WorkflowSpec, CreatedJob] = Gatherer(self.create_jobs, lanes=lanes)

    def fenced(self, fence: Fence) -> Engine:
        """An engine for duties that only one node may do: `fence` begins each of its transactions."""
        core = self._core
        return Engine(self.database.fenced(fence), core.options, metrics=self._metrics, vault=core.vault)

    async def close(self) -> None:
        """Begins nothing more by itself. The database may be closed then."""
        await self._core.follow_up.stop()

    # --- definitions and runs ---------------------------------------------------------------------------------

    async def create_workflow(self, spec: WorkflowSpec) -> Defined:
        """Saves a new workflow or job."""
        return await self.database.transact(lambda tx: define.create_workflow(self._core, tx, spec))

    async def create_job(self, spec: WorkflowSpec) -> CreatedJob:
        """Saves a job and starts it if it has no schedule, sharing a transaction with other calls of the moment."""
        return await self._jobs.call(spec)

    async def create_jobs(self, specs: Sequence[WorkflowSpec]) -> Sequence[CreatedJob]:
        """Saves jobs and starts those without a schedule, all or none."""
        return await self.database.transact(lambda tx: jobs.create_jobs(self._core, tx, specs))

    async def apply_workflow(self, spec: WorkflowSpec, *, expected_version: int | None = None) -> Defined:
        """Creates or changes the workflow of this name."""
        return await self.database.transact(
            lambda tx: define.apply_workflow(self._core, tx, spec, expected_version=expected_version)
        )

    async def set_active(self, workflow: WorkflowRow, *, is_active: bool) -> None:
        """Pauses or unpauses a workflow."""
        await self.database.transact(lambda tx: arming.set_active(self._core, tx, workflow.id, is_active=is_active))

    async def delete_workflow(self, workflow_id: str) -> None:
        """Deletes a workflow that has no open runs."""
        await self.database.transact(lambda tx: define.delete_workflow(self._core, tx, workflow_id))

    async def submit(self, request: RunRequest) -> SubmittedRun:
        """Creates a run, sharing a transaction with other calls of the moment."""
        return await self._submissions.call(request)

    async def submit_many(self, requests: Sequence[RunRequest]) -> Sequence[SubmittedRun]:
        """Creates runs, all or none."""
        return await self.database.transact(lambda tx: submit.submit(self._core, tx, requests))

    async def annotate_run(self, run_id: str, wanted: Annotation, by: str = "") -> None:
        """Changes the note and the labels of a run."""
        await self.database.transact(lambda tx: annotate.annotate_run(self._core, tx, run_id, wanted, by))

    async def cancel_run(self, run_id: str, reason: str = "") -> CancelReport:
        return await self.database.transact(lambda tx: cancel.cancel_run(self._core, tx, run_id, reason))

    async def cancel_task_run(self, task_run_id: str, reason: str = "") -> CancelReport:
        return await self.database.transact(lambda tx: cancel.cancel_task_run(self._core, tx, task_run_id, reason))

    async def retry_run(self, run_id: str, task_run_ids: Sequence[str] | None = None) -> RetryReport:
        """Tries the failed task runs of a run again, or those named."""
        return await self.database.transact(lambda tx: retry.retry_run(self._core, tx, run_id, task_run_ids))

    async def retry_or_rerun(self, run_id: str, wanted: Rerun) -> RerunReport:
        """Goes on in the same run where the states allow it, else makes a new one."""
        return await self.database.transact(lambda tx: rerun.retry_or_rerun(self._core, tx, run_id, wanted))

    async def rerun_run(self, run_id: str, wanted: Rerun) -> RerunReport:
        """Repeats a run that has ended as a new one."""
        return await self.database.transact(lambda tx: rerun.rerun_run(self._core, tx, run_id, wanted))

    async def retry_task_run(self, task_run_id: str) -> RetryReport:
        return await self.database.transact(lambda tx: retry.retry_task_run(self._core, tx, task_run_id))

    async def decide_approval(self, task_run_id: str, *, is_approved: bool, by: str, reason: str = "") -> Decision:
        """Approves or rejects what waits for a person."""
        return await self.database.transact(
            lambda tx: approve.decide_approval(
                self._core, tx, task_run_id, is_approved=is_approved, by=by, reason=reason
            )
        )

    async def mark_task_run(self, task_run_id: str, wanted: Mark) -> None:
        """Declares how a task run ended."""
        await self.database.transact(lambda tx: mark.mark_task_run(self._core, tx, task_run_id, wanted))

    async def explain_task_run(self, task_run_id: str) -> Explanation:
        """Why a task run is not running."""
        return await self.database.read(lambda tx: explain.explain_task_run(self._core, tx, task_run_id))

    async def explain_run(self, run_id: str) -> Explanation:
        """Why a workflow run has not ended."""
        return await self.database.read(lambda tx: explain.explain_run(self._core, tx, run_id))

    async def explain_schedule(self, schedule_id: str) -> Explanation:
        """Why a schedule does not fire."""
        return await self.database.read(lambda tx: explain.explain_schedule(self._core, tx, schedule_id))

    async def put_queue(self, namespace: str, name: str, wanted: QueueSettings) -> bool:
        """Says what may start of a queue; True if nothing had been said before."""
        return await self.database.transact(lambda tx: queueing.put_queue(self._core, tx, namespace, name, wanted))

    async def delete_queue(self, namespace: str, name: str) -> bool:
        """Lets everything in a queue start; False if nothing had been said of it."""
        return await self.database.transact(lambda tx: queueing.delete_queue(self._core, tx, namespace, name))

    async def read_capacity(self) -> Capacity:
        return await self.database.read(lambda tx: backlog.read_capacity(self._core, tx))

    # --- the work source of workers ---------------------------------------------------------------------------

    async def register(self, registration: Registration) -> Registered:
        return await self.database.transact(lambda tx: renew.register(self._core, tx, registration))

    async def claim(self, worker: WorkerIdentity, *, limit: int, wait_seconds: float = 0.0) -> tuple[Assignment, ...]:
        """Up to `limit` assignments; waits for the first."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + wait_seconds
        while True:
            seen = self.database.wakeups.count(Topic.QUEUE)
            answer = await self._worker_calls.call(WorkerCall(worker, (), limit))
            left = give_up_at - loop.time()
            if answer.claimed.assignments or left <= 0:
                return answer.claimed.assignments
            await self.database.wakeups.wait(Topic.QUEUE, seen, min(left, answer.claimed.choose_pause(POLL_SECONDS)))

    async def renew(self, worker: WorkerIdentity, running: Sequence[AttemptKey]) -> RenewReply:
        return await self.database.transact(lambda tx: renew.renew(self._core, tx, worker, running))

    async def report(self, worker: WorkerIdentity, reports: Sequence[Report], *, claim: int = 0) -> ReportReply:
        answer = await self._worker_calls.call(WorkerCall(worker, reports, claim))
        return ReportReply(answer.results, answer.claimed.assignments)

    async def leave(self, worker: WorkerIdentity, hand_back: Sequence[AttemptKey] = ()) -> None:
        """The worker stops. Whatever it still held goes back to the queue, named or not."""
        await self.database.transact(lambda tx: renew.leave(self._core, tx, worker))

    async def wait_for_orders(self, worker: WorkerIdentity, *, wait_seconds: float) -> bool:
        seen = self.database.wakeups.count(Topic.ORDERS)
        return await self.database.wakeups.wait(Topic.ORDERS, seen, wait_seconds)

    async def doubt(self, worker: WorkerIdentity) -> None:
        """The worker's connection broke."""
        await self.database.transact(lambda tx: renew.doubt(self._core, tx, worker))

    async def drain_worker(self, worker_id: str) -> None:
        """Asks a worker to finish what it has and take no more."""
        await self.database.transact(lambda tx: renew.drain(self._core, tx, worker_id))

    async def _serve_workers(self, calls: Sequence[WorkerCall]) -> Sequence[WorkerAnswer]:
        """Reports first: what they release may be claimed in the same transaction.

        A large report holds its runs for long; then the claim comes after it, so that others can report meanwhile.
        """
        said = [(call.worker, item) for call in calls for item in call.reports]
        if len(said) < LARGE_REPORT:
            results, claims = await self.database.transact(lambda tx: self._report_and_claim(tx, calls, said))
        else:
            results = await self.database.transact(lambda tx: complete.report(self._core, tx, said))
            try:
                claims = await self.database.transact(lambda tx: self._claim_all(tx, calls))
            except RotaError:
                # What was reported has landed; whoever wants work will ask again, and be told what is wrong.
                claims = [ClaimResult()] * len(calls)
        refused = [outcome for claimed in claims for outcome in claimed.refused]
        if refused:
            await self.database.transact(lambda tx: complete.finish(self._core, tx, refused))
        return answer_calls(calls, results, claims)

    async def _report_and_claim(
        self, transaction: Transaction, calls: Sequence[WorkerCall], said: Sequence[tuple[WorkerIdentity, Report]]
    ) -> tuple[Sequence[ReportResult], Sequence[ClaimResult]]:
        results = await complete.report(self._core, transaction, said) if said else []
        return results, await self._claim_all(transaction, calls)

    async def _claim_all(self, transaction: Transaction, calls: Sequence[WorkerCall]) -> list[ClaimResult]:
        claims = []
        for call in calls:
            claimed = ClaimResult()
            if call.limit > 0:
                worker = await renew.require_worker(self._core, transaction, call.worker)
                claimed = await claim.claim(self._core, transaction, worker, limit=call.limit)
            claims.append(claimed)
        return claims

    # --- duties ---------------------------------------------------------------------------------------------------

    async def expand_maps(self) -> int:
        """Creates a batch of items of a mapped task that has many."""
        return await self.database.transact(lambda tx: expand.expand_maps(self._core, tx))

    async def release_due(self) -> int:
        """Queues one batch of due retries."""
        return await self.database.transact(lambda tx: reap.release_due(self._core, tx))

    async def serve_due(self) -> int:
        """Does what is due for one batch of the task runs that the engine holds itself."""
        return await self.database.transact(lambda tx: held.serve_due(self._core, tx))

    async def settle_keys(self) -> int:
        """Gives out one batch of free concurrency keys."""
        return await self.database.transact(lambda tx: queueing.settle_keys(self._core, tx))

    async def expire_waiting(self) -> int:
        """Fails one batch of task runs that have waited for a worker for too long."""
        return await self.database.transact(lambda tx: reap.expire_waiting(self._core, tx))

    async def follow(self) -> int:
        """Does one round of what runs have to do with one another: starts, ends and cancels; how much that was."""
        return await follow.follow(self._core)

    async def reap_attempts(self) -> int:
        """Takes one batch of attempts away from workers whose leases have run out."""
        return await self.database.transact(lambda tx: reap.reap_attempts(self._core, tx))

    async def reap_workers(self) -> int:
        """Gives up silent workers."""
        return await self.database.transact(lambda tx: reap.reap_workers(self._core, tx))

    async def reap_runs(self) -> int:
        """Cancels one batch of runs that are over their time, and starts those whose turn was missed."""
        overdue = await self.database.transact(lambda tx: reap.find_overdue(self._core, tx))
        for run_id in overdue:
            # Another node may have been faster.
            with suppress(Conflict, NotFound):
                await self.database.transact(partial(reap.cancel_overdue, self._core, run_id=run_id))
        return len(overdue) + await self.database.transact(lambda tx: reap.start_waiting(self._core, tx))

    async def prune(self, retention_seconds: float) -> int:
        """Deletes one batch of what is older than the retention."""
        return await self.database.transact(lambda tx: prune.prune(self._core, tx, retention_seconds))

    async def find_next_due(self) -> tuple[datetime | None, datetime]:
        """When something is due next that the engine has to do by itself, and the database's time now."""
        return await self.database.transact(due.find_next_due)
