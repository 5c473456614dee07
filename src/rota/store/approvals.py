"""Statements on task runs that wait for a person's decision."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import bindparam, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id
from rota.store.tables import task_runs, tasks

_t = task_runs.c


class ApprovalRow(NamedTuple):
    """A task run as somebody finds it who decides about it."""

    id: str
    run_id: str
    task_id: str
    kind: str
    status: str
    holder: str | None
    attempt: int
    waiting_for: Any
    output: Any
    now: datetime


_FIND = (
    select(
        _t.id,
        _t.run_id,
        _t.task_id,
        tasks.c.kind,
        _t.status,
        _t.holder,
        _t.attempt,
        _t.waiting_for,
        _t.output,
        NOW.label("now"),
    )
    .join(tasks, tasks.c.id == _t.task_id)
    .where(_t.id == bindparam("wanted", type_=Id()))
)


async def find_approval(transaction: Transaction, task_run_id: str) -> ApprovalRow | None:
    """The task run and the database's time; it need not be an approval."""
    row = await transaction.row(_FIND, {"wanted": task_run_id})
    return None if row is None else ApprovalRow(*row)
