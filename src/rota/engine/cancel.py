"""cancel: ends a run, or one task run, that has not ended yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import Conflict, NotFound
from rota.domain.states import Holder
from rota.engine.advance import advance
from rota.engine.core import Core
from rota.engine.items import end_items
from rota.engine.queueing import free_keys
from rota.engine.record import note_run, note_task, record
from rota.store import interventions, outcomes, task_runs, workflow_runs
from rota.store.database import Transaction
from rota.store.encoding import clean_text
from rota.store.interventions import Stopped
from rota.store.wakeups import Topic


@dataclass(frozen=True, slots=True)
class CancelReport:
    """How many task runs were stopped at once, and how many workers were asked to stop theirs."""

    stopped: int
    asked: int


async def cancel_run(core: Core, transaction: Transaction, run_id: str, reason: str = "") -> CancelReport:
    """Cancels what waits, asks the workers to kill what runs; clean-up tasks still run. Cancelling twice is fine."""
    reason = clean_text(reason)
    run = await interventions.request_cancel(transaction, run_id, reason)
    if run is None:
        await _explain_refusal(transaction, run_id)
        return CancelReport(0, 0)
    changes = []
    ready: list[str] = []
    open_rows = await interventions.lock_open_task_runs(transaction, run_id)
    if run.status == "pending":
        await interventions.start_to_clean_up(transaction, run_id)
        changes.append(note_run(run_id, run.namespace, "pending", "running", {"reason": "cancelled before its turn"}))
    touched = [row for row in open_rows if not row.is_teardown]
    stopped, asked = await _stop(transaction, touched)
    if run.status == "pending":
        clean_up = await task_runs.queue_first_tasks(transaction, [run_id])
        changes += [note_task(row.id, run_id, row.namespace, "pending", "queued") for row in clean_up]
        ready = [row.id for row in clean_up if row.is_gated]
        transaction.wake(Topic.QUEUE)
    details = {"reason": reason} if reason else None
    changes += [note_task(row.id, run_id, run.namespace, row.old_status, "cancelled", details) for row in stopped]
    changes += await advance(
        core,
        transaction,
        await end_items(transaction, run_id, stopped),
        ready,
    )
    await record(core, transaction, changes)
    if any(row.holder == Holder.RUN for row in touched):
        core.follow_up.soon(transaction)
    if asked:
        transaction.wake(Topic.ORDERS)
    return CancelReport(len(stopped), asked)


async def _stop(transaction: Transaction, rows: Sequence[Any]) -> tuple[list[Stopped], int]:
    """Cancels what no worker has, whose keys go to others, and asks for the rest. Mapped tasks end with their items."""
    waiting = [(row.id, row.status) for row in rows if _stops_at_once(row)]
    running = [row.id for row in rows if not _stops_at_once(row)]
    stopped = await interventions.stop_waiting(transaction, waiting) if waiting else []
    await free_keys(transaction, stopped)
    asked = await interventions.ask_running(transaction, running) if running else 0
    mapped = sum(row.holder == Holder.ITEMS for row in rows)
    if mapped:
        # Those that do not have all of their items yet get no more.
        transaction.wake(Topic.SCHEDULES)
    return stopped, asked - mapped


def _stops_at_once(row: Any) -> bool:
    """Nobody has to be asked: it waits, or the engine itself waits for a time or for a person."""
    return row.status != "running" or row.holder in (Holder.WAIT, Holder.POLL, Holder.APPROVAL)


async def _explain_refusal(transaction: Transaction, run_id: str) -> None:
    run = await workflow_runs.lock_run(transaction, run_id)
    if run is None:
        raise NotFound(f"there is no workflow run {run_id}")
    if run.status != "cancelled":
        raise Conflict(f"workflow run {run_id} is {run.status} already: there is nothing left to cancel")


async def cancel_task_run(core: Core, transaction: Transaction, task_run_id: str, reason: str = "") -> CancelReport:
    """Cancels one task run; for those that wait for it, it counts as failed."""
    standing = (await outcomes.read_standings(transaction, [task_run_id])).get(task_run_id)
    if standing is None:
        raise NotFound(f"there is no task run {task_run_id}")
    run = await workflow_runs.lock_run(transaction, standing.run_id)
    if run is not None and run.status == "pending":
        raise Conflict(f"workflow run {standing.run_id} waits for its turn: cancel the run instead")
    open_rows = await interventions.lock_open_task_runs(transaction, standing.run_id)
    row = next((row for row in open_rows if row.id == task_run_id), None)
    if row is None:
        if standing.status == "cancelled":
            return CancelReport(0, 0)
        raise Conflict(f"task run {task_run_id} is {standing.status} already: there is nothing left to cancel")
    items = [item for item in open_rows if item.task_id == row.task_id and item.map_index >= 0]
    rows = [row, *items] if row.map_index < 0 else [row]
    stopped, asked = await _stop(transaction, rows)
    if any(item.holder == Holder.RUN for item in rows):
        core.follow_up.soon(transaction)
    if asked:
        transaction.wake(Topic.ORDERS)
    details = {"reason": clean_text(reason)} if reason else None
    changes = [
        note_task(item.id, standing.run_id, standing.namespace, item.old_status, "cancelled", details)
        for item in stopped
    ]
    changes += await advance(core, transaction, await end_items(transaction, standing.run_id, stopped))
    await record(core, transaction, changes)
    return CancelReport(len(stopped), asked)
