"""retry: a failed run goes on from what failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from rota.domain.errors import Conflict, NotFound
from rota.domain.states import TASK_FINAL, TaskState
from rota.engine.advance import advance
from rota.engine.branches import find_left_out
from rota.engine.core import Core, Ended
from rota.engine.items import reopen_items, split_items
from rota.engine.record import note_run, note_task, record
from rota.store import attempts, definitions, interventions, outcomes, workflow_runs
from rota.store.database import Transaction
from rota.store.history import Change
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
    again, items = split_items(rows, chosen)
    if not again and not items:
        raise Conflict(f"the mapped tasks of these items in run {run_id} are over: run it again in a new run")
    await attempts.keep_failed_attempts(transaction, [row.id for row in (*again, *items)])
    queued = await interventions.queue_again(transaction, [row.id for row in again])
    reopened = await reopen_items(transaction, run_id, items)
    changes = [] if run.status == "running" else [note_run(run_id, run.namespace, "failed", "running")]
    details = {"reason": "retried by request"}
    changes += [note_task(row.id, run_id, row.namespace, "failed", "queued", details) for row in queued]
    waiting = await give_another_chance(
        transaction, run, rows, {row.task_id for row in again}, {row.id for row in queued}
    )
    decided = await decide_again(core, transaction, run)
    changes += [*reopened.changes, *waiting, *decided.changes]
    ready = [*reopened.ready, *(row.id for row in queued if row.is_gated)]
    changes += await advance(core, transaction, decided.ended, [*ready, *decided.ready])
    await record(core, transaction, changes)
    transaction.wake(Topic.QUEUE)
    return RetryReport(len(queued) + len(items), len(waiting))


async def give_another_chance(
    transaction: Transaction, run: Any, rows: Sequence[RunTask], from_task_ids: Set[str], reopened: Set[str]
) -> list[Change]:
    """What had given up below these tasks waits once more, and the run, of which `reopened` are open again, goes on."""
    given_up = await _find_given_up(transaction, run.version_id, rows, from_task_ids)
    waiting = await interventions.wait_again(transaction, [row.id for row in given_up if row.id not in reopened])
    await _reopen(transaction, run.id, rows, {row.id for row in waiting} | reopened)
    return [note_task(row.id, run.id, row.namespace, "upstream_failed", "pending") for row in waiting]


@dataclass(slots=True)
class Decided:
    """What became of those that waited: who ended, which gated ones were queued."""

    changes: list[Change] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)


async def decide_again(core: Core, transaction: Transaction, run: Any) -> Decided:
    """Counts for everything that waits in a run from scratch: some may have a reason to give up, or to start."""
    decided = Decided()
    left_out = await find_left_out(core, transaction, run.id, run.version_id)
    for row in await interventions.recount_and_decide(transaction, run.id, left_out):
        decided.changes.append(note_task(row.id, run.id, row.namespace, "pending", row.status))
        if row.status == "queued":
            decided.ready += [row.id] if row.is_gated else []
        else:
            decided.ended.append(Ended(run.id, row.task_id, row.status, row.downstream_count, row.is_teardown, -1))
    return decided


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
    # A run counts tasks; mapped ones count their items.
    rows = [row for row in rows if row.map_index < 0]
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
