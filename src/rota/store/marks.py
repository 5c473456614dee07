"""Statements for what people declare of a task run, whatever became of it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import String, Text, bindparam, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id
from rota.store.tables import task_runs

_t = task_runs.c
_id = bindparam("marked", type_=Id())


class Marked(NamedTuple):
    """A task run as it is when somebody declares how it ended."""

    id: str
    run_id: str
    namespace: str
    task_id: str
    map_index: int
    status: str
    attempt: int
    downstream_count: int
    is_teardown: bool
    holder: str | None
    worker_id: str | None
    incarnation: str | None
    started_at: datetime | None


_LOCK = select(*(_t[name] for name in Marked._fields)).where(_t.id == _id).with_for_update()


async def lock_task_run(transaction: Transaction, task_run_id: str) -> Marked | None:
    """The task run, held until the commit. Its run is locked."""
    row = await transaction.row(_LOCK, {"marked": task_run_id})
    return Marked(*row) if row else None


_MARK = (
    update(task_runs)
    .values(
        status=bindparam("new_status", type_=String(20)),
        error_type=bindparam("new_error_type", type_=String(40)),
        error=bindparam("new_error", type_=Text()),
        exit_code=None,
        output=None,
        usage=None,
        is_unconfirmed=False,
        finished_at=NOW,
        due_at=None,
        lease_expires_at=None,
        holder=None,
    )
    .where(_t.id == _id, _t.status == bindparam("old_status", type_=String(20)))
)


async def mark(
    transaction: Transaction, row: Marked, status: str, *, error_type: str | None = None, error: str | None = None
) -> None:
    """Ends a locked task run like this, whoever has it."""
    parameters = {"marked": row.id, "old_status": row.status, "new_status": status}
    await transaction.run(_MARK, {**parameters, "new_error_type": error_type, "new_error": error})
