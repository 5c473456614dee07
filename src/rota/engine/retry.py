"""retry: a failed run goes on from what failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rota.domain.errors import Conflict, NotFound
from rota.domain.states import TASK_FINAL, TaskState
from rota.engine.advance import advance
from rota.engine.branches import find_left_out
from rota.engine.core import Core, Ended
from rota.engine.record import note_run, note_task, record
from rota.store import attempts, definitions, interventions, outcomes, workflow_runs
from rota.store.database import Transaction
from rota.store.interventions import RunTask
from rota.store.wakeups import Topic


@dataclass(frozen=True, slots=True)
class RetryReport:
    """How many task runs start over, and how many wait for them again."""

    queued: int
    waiting: int


async def retry_run(
    core: Core, transaction: Transaction, run_id: str, task_run_ids: Sequence[str] | None = None
) -> RetryReport:
    """Tries the failed task runs of a run again (all, or those named), and with them what they had made give up."""
    run = await workflow_runs.lock_run(transaction, run_id)
    if run is None:
        raise NotFound(f"there is no workflow run {run_id}")
    if run.status == "running" and run.cancel_requested_at is not None:
        raise Conflict(f"workflow run {run_id} is being cancelled: retry it when it has ended")
    rows = await interventions.lock_task_runs(transaction, run_id)
    chosen = _choose_failed(rows, task_run_ids)
    if run.status not in ("failed", "running") or not chosen:
        raise Conflict(f"workflow run {run_id} is {run.status}: only failed task runs can be retried")
    given_up = await _find_given_up(transaction, run.version_id, rows, {row.task_id for row in chosen})
    await attempts.keep_failed_attempts(transaction, [row.id for row in chosen])
    queued = await interventions.queue_again(transaction, [row.id for row in chosen])
    waiting = await interventions.wait_again(transaction, [row.id for row in given_up])
    changed = {row.id for row in (*queued, *waiting)}
    await _reopen(transaction, run_id, rows, changed)
    changes = [] if run.status == "running" else [note_run(run_id, run.namespace, "failed", "running")]
    details = {"reason": "retried by request"}
    changes += [note_task(row.id, run_id, row.namespace, "failed", "queued", details) for row in queued]
    changes += [note_task(row.id, run_id, row.namespace, "upstream_failed", "pending") for row in waiting]
    # Some may have another reason to give up, or to start at once.
    ended = []
    ready = [row.id for row in queued if row.is_gated]
    left_out = await find_left_out(core, transaction, run_id, run.version_id)
    for row in await interventions.recount_and_decide(transaction, run_id, left_out):
        changes.append(note_task(row.id, run_id, row.namespace, "pending", row.status))
        if row.status == "queued":
            ready += [row.id] if row.is_gated else []
        else:
            ended.append(Ended(run_id, row.task_id, row.status, row.downstream_count, row.is_teardown))
    changes += await advance(core, transaction, ended, ready)
    await record(core, transaction, changes)
    transaction.wake(Topic.QUEUE)
    return RetryReport(len(queued), len(waiting))


def _choose_failed(rows: Sequence[RunTask], task_run_ids: Sequence[str] | None) -> list[RunTask]:
    wanted = None if task_run_ids is None else set(task_run_ids)
    return [row for row in rows if row.status == TaskState.FAILED and (wanted is None or row.id in wanted)]


async def _find_given_up(
    transaction: Transaction, version_id: str, rows: Sequence[RunTask], from_task_ids: Iterable[str]
) -> list[RunTask]:
    """What is `upstream_failed` somewhere below these tasks."""
    children: dict[str, list[str]] = defaultdict(list)
    for task_id, depends_on in await definitions.read_dependencies(transaction, version_id):
        children[depends_on].append(task_id)
    by_task: dict[str, list[RunTask]] = defaultdict(list)
    for row in rows:
        by_task[row.task_id].append(row)
    found: list[RunTask] = []
    seen: set[str] = set()
    stack = list(from_task_ids)
    while stack:
        for child in children[stack.pop()]:
            below = [row for row in by_task[child] if row.status == TaskState.UPSTREAM_FAILED]
            if below and child not in seen:
                seen.add(child)
                found += below
                stack.append(child)
    return found


async def _reopen(transaction: Transaction, run_id: str, rows: Sequence[RunTask], changed: set[str]) -> None:
    remaining = sum(row.id in changed or row.status not in TASK_FINAL for row in rows)
    failed = sum(
        row.id not in changed and row.status in ("failed", "cancelled") and not row.is_teardown for row in rows
    )
    await interventions.reopen_run(transaction, run_id, remaining=remaining, failed_count=failed)


async def retry_task_run(core: Core, transaction: Transaction, task_run_id: str) -> RetryReport:
    """Tries one failed task run again."""
    standing = (await outcomes.read_standings(transaction, [task_run_id])).get(task_run_id)
    if standing is None:
        raise NotFound(f"there is no task run {task_run_id}")
    return await retry_run(core, transaction, standing.run_id, [task_run_id])
