"""Statements on task runs that may wait for a worker only so long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Float, Integer, Text, bindparam, func, select, update

from rota.store import workflow_runs
from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, among, batch, constant
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs

_t = task_runs.c

_limited = batch("limited", id=Id(), seconds=Float())
_LIMIT = (
    update(task_runs)
    .values(due_at=add_seconds(_t.queued_at, _limited.c.seconds))
    .where(
        _t.id == _limited.c.id, among(_t.id, select(_limited.c.id).scalar_subquery()), _t.status == constant("queued")
    )
)


async def limit_waiting(transaction: Transaction, rows: Sequence[tuple[str, float]]) -> None:
    """Lets (task run, seconds) wait no longer than that in the queue."""
    await transaction.run(_LIMIT, {"limited": encode_rows(rows)})


class Waiting(NamedTuple):
    id: str
    run_id: str
    task_id: str


_is_over = (_t.status == constant("queued"), _t.due_at.is_not(None), _t.due_at <= NOW)
_FIND = (
    select(_t.id, _t.run_id, _t.task_id)
    .where(*_is_over)
    .order_by(_t.due_at)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_expired(transaction: Transaction, limit: int) -> list[Waiting]:
    """Queued task runs that have waited too long, the longest overdue first. They are not locked."""
    return [Waiting(*row) for row in await transaction.rows(_FIND, {"at_most": limit})]


class Expired(NamedTuple):
    id: str
    run_id: str
    namespace: str
    task_id: str
    downstream_count: int
    is_teardown: bool
    map_index: int


_chosen = batch("expired", id=Id(), error=Text())
_EXPIRE = (
    update(task_runs)
    .values(status="failed", finished_at=NOW, due_at=None, error_type="timeout", error=_chosen.c.error)
    .where(_t.id == _chosen.c.id, among(_t.id, select(_chosen.c.id).scalar_subquery()), *_is_over)
    .returning(*(_t[name] for name in Expired._fields))
)


async def expire(transaction: Transaction, waiting: Sequence[Waiting], reasons: Sequence[str]) -> list[Expired]:
    """Fails those that still wait, each for its reason; returns them. Locks their runs."""
    await workflow_runs.lock_runs(transaction, [row.run_id for row in waiting])
    rows = [(row.id, reason) for row, reason in zip(waiting, reasons, strict=True)]
    return [Expired(*row) for row in await transaction.rows(_EXPIRE, {"expired": encode_rows(rows)})]


_NEXT = select(func.min(_t.due_at)).where(_t.status == constant("queued"), _t.due_at.is_not(None))


async def read_next_due(transaction: Transaction) -> Any:
    """When the next task run will have waited too long; None if there is none."""
    row = await transaction.row(_NEXT)
    return row[0] if row else None
