"""reap: takes care of what has lost its owner: expired leases, silent workers, due retries, late runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.domain.states import TaskState
from rota.domain.work import ErrorType
from rota.engine.advance import advance, start_turns
from rota.engine.cancel import cancel_run
from rota.engine.complete import finish
from rota.engine.core import Core, Ended, TaskDefinition
from rota.engine.gate import find_started_again
from rota.engine.queueing import pass_on
from rota.engine.record import note_task, note_worker, record
from rota.store import expiry, gates, outcomes, turns, workers, workflow_runs
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.outcomes import Outcome, Standing
from rota.store.wakeups import Topic

BATCH = 500


@dataclass(frozen=True, slots=True)
class ReapReport:
    """What was found."""

    lost_workers: int = 0
    lost_attempts: int = 0
    due_retries: int = 0


async def reap_workers(core: Core, transaction: Transaction) -> int:
    """Gives up workers that have been silent for longer than their lease."""
    silent = await workers.retire_expired(transaction)
    for row in silent:
        core.workers.forget(row.incarnation)
    await record(core, transaction, [note_worker(row.id, "active", "inactive", {"reason": "silent"}) for row in silent])
    return len(silent)


async def reap_attempts(core: Core, transaction: Transaction) -> int:
    """Ends attempts whose lease has run out: they are tried again, within the budget for lost work."""
    expired = await workers.find_expired_attempts(transaction, BATCH)
    keys = [(row.id, row.attempt, row.incarnation) for row in expired]
    return await lose_attempts(core, transaction, keys, needs_expired_lease=True, reason="the worker was lost")


async def lose_attempts(
    core: Core,
    transaction: Transaction,
    keys: Sequence[tuple[str, int, str]],
    *,
    needs_expired_lease: bool,
    reason: str,
    is_charged: bool = True,
) -> int:
    """Ends (task run id, attempt, incarnation) for a reason that is not the task's own."""
    if not keys:
        return 0
    standings = await outcomes.read_standings(transaction, [key[0] for key in keys])
    tasks = await core.find_tasks(transaction, [row.task_id for row in standings.values()])
    decided = []
    for task_run_id, attempt, incarnation in keys:
        standing = standings.get(task_run_id)
        if standing is not None:
            status, error_type = _choose_lost_state(standing, tasks[standing.task_id], is_charged=is_charged)
            decided.append(
                Outcome(
                    task_run_id,
                    attempt,
                    incarnation,
                    status,
                    error_type=error_type,
                    error=_explain(standing, status, reason),
                    is_loss=int(is_charged),
                    needs_expired_lease=needs_expired_lease,
                    is_unconfirmed=status == TaskState.CANCELLED,
                )
            )
    return len(await finish(core, transaction, decided))


def _choose_lost_state(standing: Standing, task: TaskDefinition, *, is_charged: bool) -> tuple[TaskState, ErrorType]:
    if standing.is_cancelling:
        return TaskState.CANCELLED, ErrorType.CANCELLED
    if not is_charged:
        return TaskState.QUEUED, ErrorType.WORKER_LOST
    if task.spec.on_lost == "fail":
        return TaskState.FAILED, ErrorType.WORKER_LOST
    if standing.lost_count + 1 >= standing.max_deliveries:
        return TaskState.FAILED, ErrorType.POISON
    return TaskState.QUEUED, ErrorType.WORKER_LOST


def _explain(standing: Standing, status: TaskState, reason: str) -> str:
    if status == TaskState.FAILED:
        return f"{reason} while it executed this, {standing.lost_count + 1} of at most {standing.max_deliveries} times"
    if status == TaskState.CANCELLED:
        return f"{reason}; whether the processes have ended could not be confirmed"
    return reason


async def release_due(core: Core, transaction: Transaction) -> int:
    """Queues retries whose time has come."""
    rows = [*await outcomes.queue_due_retries(transaction, BATCH)]
    gated = await gates.queue_due_retries(transaction, BATCH)
    rows += gated
    changes = [note_task(row.id, row.run_id, row.namespace, "retrying", "queued") for row in rows]
    ready = await find_started_again(core, transaction, gated)
    if ready:
        changes += await advance(core, transaction, [], ready)
    await record(core, transaction, changes)
    if rows:
        transaction.wake(Topic.QUEUE)
    return len(rows)


async def expire_waiting(core: Core, transaction: Transaction) -> int:
    """Fails task runs that have waited in the queue for longer than they may."""
    waiting = await expiry.find_expired(transaction, BATCH)
    if not waiting:
        return 0
    tasks = await core.find_tasks(transaction, [row.task_id for row in waiting])
    reasons = [_explain_expiry(tasks[row.task_id]) for row in waiting]
    expired = await expiry.expire(transaction, waiting, reasons)
    changes = [
        note_task(
            row.id,
            row.run_id,
            row.namespace,
            "queued",
            "failed",
            {"error_type": ErrorType.TIMEOUT, "reason": _explain_expiry(tasks[row.task_id])},
        )
        for row in expired
    ]
    await pass_on(transaction, [row.id for row in expired])
    ended = [
        Ended(row.run_id, row.task_id, "failed", row.downstream_count, row.is_teardown, row.map_index)
        for row in expired
    ]
    changes += await advance(core, transaction, ended)
    await record(core, transaction, changes)
    return len(expired)


def _explain_expiry(task: TaskDefinition) -> str:
    return f"no worker took it within its queue_timeout_seconds ({task.document['queue_timeout_seconds']:g})"


async def find_overdue(core: Core, transaction: Transaction) -> list[str]:
    """Runs that are over their time. Each is cancelled in a transaction of its own: a cancel holds the run and then
    its workflow, and whoever holds a workflow waits for no run."""
    return await workflow_runs.find_overdue(transaction, BATCH)


async def cancel_overdue(core: Core, transaction: Transaction, run_id: str) -> None:
    """Cancels a run that is over its time."""
    await cancel_run(core, transaction, run_id, "over its run_timeout_seconds")


async def start_waiting(core: Core, transaction: Transaction) -> int:
    """Starts runs whose turn has come unnoticed: the one who made room for them may have died, or left them out."""
    changes: list[Change] = []
    for workflow_id in await turns.find_waiting_workflows(transaction, BATCH):
        changes += await start_turns(core, transaction, workflow_id)
    await record(core, transaction, changes)
    return sum(change.entity_type == "workflow_run" for change in changes)
