"""mark: somebody declares how a task run ended, and everything goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rota.domain.errors import Conflict, NotFound
from rota.domain.states import TASK_FINAL, Holder, TaskState, can_move
from rota.domain.work import ErrorType
from rota.engine.advance import advance
from rota.engine.core import Core, Ended
from rota.engine.items import end_items
from rota.engine.queueing import free_keys, pass_on
from rota.engine.record import note_run, note_task, record
from rota.engine.retry import decide_again, give_another_chance
from rota.store import attempts, interventions, maps, marks, outcomes, workflow_runs
from rota.store.database import Transaction
from rota.store.encoding import clean_text, to_microseconds
from rota.store.history import Change
from rota.store.marks import Marked
from rota.store.wakeups import Topic

MarkStatus = Literal["success", "failed", "skipped"]
_WHY = {"reason": "one of its task runs was marked"}


@dataclass(frozen=True, slots=True)
class Mark:
    """What is declared, why, and by whom."""

    status: MarkStatus
    reason: str = ""
    by: str = ""

    @property
    def details(self) -> dict[str, Any]:
        """For the history."""
        named = {"reason": clean_text(self.reason), "by": clean_text(self.by)}
        return {"is_marked": True, **{name: text for name, text in named.items() if text}}

    @property
    def sentence(self) -> str:
        """For readers of the task run."""
        by = f" by {self.by}" if self.by else ""
        return clean_text(f"marked {self.status}{by}" + (f": {self.reason}" if self.reason else ""))


async def mark_task_run(core: Core, transaction: Transaction, task_run_id: str, wanted: Mark) -> None:
    """Ends a task run as declared, with all that follows; what is marked so already stays as it is.

    A worker that is at it is asked to stop, and its result comes too late. What is success, skipped or cancelled is
    final. What had given up because of a failure is decided again.
    """
    standing = (await outcomes.read_standings(transaction, [task_run_id])).get(task_run_id)
    run = await workflow_runs.lock_run(transaction, standing.run_id) if standing else None
    row = await marks.lock_task_run(transaction, task_run_id) if run else None
    if row is None or run is None:
        raise NotFound(f"there is no task run {task_run_id}")
    if row.status == wanted.status:
        return
    _require_move(row, run, wanted)
    await _end(transaction, row, wanted)
    await pass_on(transaction, [row.id])
    changes = [note_task(row.id, row.run_id, row.namespace, row.status, wanted.status, wanted.details)]
    if row.status in TASK_FINAL:
        changes += await _go_on(core, transaction, row, run, wanted)
    else:
        ended, cancelled = await _end_with_items(transaction, row, wanted)
        changes += [*cancelled, *await advance(core, transaction, ended)]
    await record(core, transaction, changes)
    transaction.wake(Topic.QUEUE)
    if row.status == TaskState.RUNNING:
        core.follow_up.soon(transaction)
        transaction.wake(Topic.ORDERS)


def _require_move(row: Marked, run: Any, wanted: Mark) -> None:
    if not can_move(TaskState(row.status), TaskState(wanted.status)):
        raise Conflict(
            f"task run {row.id} is {row.status}, which cannot become {wanted.status}: run it again in a new run "
            f"(POST /workflow-runs/{row.run_id}/rerun)"
        )
    if run.status == "pending":
        raise Conflict(f"workflow run {run.id} waits for its turn: nothing in it can be marked before it has started")
    if row.status not in TASK_FINAL:
        return
    if row.map_index >= 0:
        raise Conflict(f"task run {row.id} is an item that is {row.status}: mark its mapped task instead, or retry it")
    if run.status not in ("running", "failed"):
        raise Conflict(f"workflow run {run.id} is {run.status}, which is final: run it again in a new run")
    if run.status == "running" and run.cancel_requested_at is not None:
        raise Conflict(f"workflow run {run.id} is being cancelled: mark its task runs when it has ended")


async def _end(transaction: Transaction, row: Marked, wanted: Mark) -> None:
    """Writes the new state. What the last attempt was is kept: the task run's own row says something else now."""
    if wanted.status == "failed":
        await marks.mark(transaction, row, "failed", error_type=ErrorType.MARKED, error=wanted.sentence)
        return
    if row.status == TaskState.FAILED:
        await attempts.keep_failed_attempts(transaction, [row.id])
    if row.status == TaskState.RUNNING:
        await attempts.keep_attempts(transaction, [_describe_attempt(row, wanted)])
    error = wanted.sentence if wanted.status == "skipped" else None
    await marks.mark(transaction, row, wanted.status, error=error)


async def _end_with_items(transaction: Transaction, row: Marked, wanted: Mark) -> tuple[list[Ended], list[Change]]:
    """The end of an open task run; that of a mapped task is the end of its items, too."""
    is_teardown, index = row.is_teardown, row.map_index
    ended = [Ended(row.run_id, row.task_id, wanted.status, row.downstream_count, is_teardown, index)]
    if index >= 0 and row.status == TaskState.PENDING:
        await maps.count_waiting(transaction, [(row.run_id, row.task_id, -1)])
    if row.holder != Holder.ITEMS:
        return ended, []
    rows = await interventions.lock_open_task_runs(transaction, row.run_id)
    items = [(item.id, item.status) for item in rows if item.task_id == row.task_id]
    stopped = await interventions.terminate_task_runs(transaction, items)
    await free_keys(transaction, stopped)
    details = {"reason": "its mapped task was marked"}
    changes = [note_task(item.id, row.run_id, row.namespace, item.old_status, "cancelled", details) for item in stopped]
    return [*ended, *await end_items(transaction, row.run_id, stopped)], changes


def _describe_attempt(row: Marked, wanted: Mark) -> tuple[Any, ...]:
    """The attempt that is cut off, in the order of the table."""
    started = to_microseconds(row.started_at)
    identity = (row.id, row.attempt, row.run_id, "cancelled", row.worker_id, row.incarnation, started)
    return (*identity, None, ErrorType.CANCELLED, wanted.sentence, None, False)


async def _go_on(core: Core, transaction: Transaction, row: Marked, run: Any, wanted: Mark) -> Sequence[Change]:
    """The run goes on from a task run that had failed or given up."""
    rows = await interventions.lock_task_runs(transaction, row.run_id)
    changes = [] if run.status == "running" else [note_run(run.id, run.namespace, "failed", "running", _WHY)]
    # The marked one counts as open until `advance` counts its end; those below it are counted from scratch.
    changes += await give_another_chance(transaction, run, rows, {row.task_id}, {row.id})
    decided = await decide_again(core, transaction, run)
    ended = Ended(row.run_id, row.task_id, wanted.status, 0, row.is_teardown, row.map_index)
    return [*changes, *decided.changes, *await advance(core, transaction, [ended, *decided.ended], decided.ready)]
