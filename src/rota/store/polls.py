"""Statements on task runs that ask an address again and again until it answers as expected."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Integer, Text, bindparam, func, select, type_coerce, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, among, batch, constant, within
from rota.store.encoding import encode_json, encode_rows, to_microseconds
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


class PutOff(NamedTuple):
    """When a poll is due next. It counts only while the poll is due when it was: nobody else has taken it."""

    task_run_id: str
    attempt: int
    due_at: datetime
    next_due_at: datetime
    # As it was, if left out.
    waiting_for: Any = None


_put_off = batch("put_off", id=Id(), attempt=Integer(), due_at=Instant(), next_due_at=Instant(), waiting_for=Text())
# Nobody is waited for who changes one of them at this moment: only those who have locked their runs may wait.
_free = (
    select(_t.id)
    .where(within(_t.id, select(_put_off.c.id).scalar_subquery()), _t.holder == constant("poll"))
    .with_for_update(skip_locked=True)
    .cte("free")
)
_PUT_OFF = (
    update(task_runs)
    .values(
        due_at=_put_off.c.next_due_at,
        waiting_for=func.coalesce(_put_off.c.waiting_for, type_coerce(_t.waiting_for, Text())),
    )
    .where(
        _t.id == _put_off.c.id,
        _t.id == _free.c.id,
        among(_t.id, select(_put_off.c.id).scalar_subquery()),
        _t.holder == constant("poll"),
        _t.attempt == _put_off.c.attempt,
        _t.due_at == _put_off.c.due_at,
    )
    .returning(_t.id)
)


async def put_off(transaction: Transaction, polls: Sequence[PutOff]) -> set[str]:
    """Makes polls due later; the ids of those that were still due as it says."""
    rows = [
        (
            item.task_run_id,
            item.attempt,
            to_microseconds(item.due_at),
            to_microseconds(item.next_due_at),
            None if item.waiting_for is None else encode_json(item.waiting_for),
        )
        for item in polls
    ]
    return {row.id for row in await transaction.rows(_PUT_OFF, {"put_off": encode_rows(rows)})}
