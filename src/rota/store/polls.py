"""Statements on task runs that ask an address again and again until it answers as expected."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Integer, bindparam, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, constant
from rota.store.tables import task_runs

_t = task_runs.c
_is_due = (_t.holder == constant("poll"), _t.due_at.is_not(None), _t.due_at <= NOW)


class PollRow(NamedTuple):
    """A task run whose next poll is due."""

    id: str
    attempt: int
    due_at: datetime
    started_at: datetime
    timeout_seconds: float | None
    waiting_for: Any
    now: datetime


_FIND_DUE = (
    select(_t.id, _t.attempt, _t.due_at, _t.started_at, _t.timeout_seconds, _t.waiting_for, NOW.label("now"))
    .where(*_is_due)
    .order_by(_t.due_at)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_due_polls(transaction: Transaction, limit: int) -> list[PollRow]:
    """Those whose next poll is due, the longest overdue first."""
    return [PollRow(*row) for row in await transaction.rows(_FIND_DUE, {"at_most": limit})]
