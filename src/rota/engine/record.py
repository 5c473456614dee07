"""Words for the history: what changed, of which kind of thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.engine.core import Core
from rota.store import history
from rota.store.database import Transaction
from rota.store.encoding import encode_json
from rota.store.history import Change
from rota.store.schedules import ScheduleRow


def note_task(
    task_run_id: str, run_id: str, namespace: str, old: str | None, new: str, details: dict[str, Any] | None = None
) -> Change:
    """A change of a task run."""
    return Change("task_run", task_run_id, run_id, namespace, old, new, encode_json(details) if details else None)


def note_run(run_id: str, namespace: str, old: str | None, new: str, details: dict[str, Any] | None = None) -> Change:
    """A change of a workflow run."""
    return Change("workflow_run", run_id, run_id, namespace, old, new, encode_json(details) if details else None)


def note_worker(worker_id: str, old: str | None, new: str, details: dict[str, Any] | None = None) -> Change:
    """A change of a worker."""
    return Change("worker", worker_id, worker_id, "", old, new, encode_json(details) if details else None)


def note_schedule(row: ScheduleRow, decision: str, details: dict[str, Any]) -> Change:
    """A decision about a schedule."""
    return Change("schedule", row.id, row.id, row.namespace, None, decision, encode_json(details))


async def record(core: Core, transaction: Transaction, changes: Sequence[Change]) -> None:
    """Writes the changes of a verb into the history, and counts them."""
    await history.record_changes(transaction, changes)
    if core.watch and changes:
        core.watch.note_changes(transaction, changes)
