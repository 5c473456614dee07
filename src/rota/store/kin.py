"""Statements on what runs have to do with each other: those that others started, and ends that have to be told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Integer, bindparam, or_, select, update

from rota.domain.states import RUN_OPEN
from rota.store.database import Transaction
from rota.store.dialect import Id, among, batch, flag, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs, workflow_runs

_r = workflow_runs.c
_t = task_runs.c
_at_most = bindparam("at_most", type_=Integer())


class Untold(NamedTuple):
    """A run that has ended, and the one that started it."""

    id: str
    parent_run_id: str | None


_FIND_UNTOLD = (
    select(_r.id, _r.parent_run_id)
    .where(flag(_r.is_untold), _r.finished_at.is_not(None))
    .order_by(_r.finished_at)
    .limit(_at_most)
)


async def find_untold(transaction: Transaction, limit: int) -> list[Untold]:
    """Runs whose end has to be told, the oldest end first."""
    return [Untold(*row) for row in await transaction.rows(_FIND_UNTOLD, {"at_most": limit})]


class EndedRun(NamedTuple):
    """A run that has ended, as others are told of it."""

    id: str
    namespace: str
    workflow_id: str
    status: str
    logical_date: datetime
    parent_run_id: str | None
    parent_task_run_id: str | None
    parent_attempt: int | None
    depth: int
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    deadline_at: datetime | None


_told = batch("told", id=Id())
_TAKE = (
    update(workflow_runs)
    .values(is_untold=False)
    .where(within(_r.id, select(_told.c.id).scalar_subquery()), _r.is_untold.is_(True), _r.finished_at.is_not(None))
    .returning(*(_r[name] for name in EndedRun._fields))
)


async def take_untold(transaction: Transaction, run_ids: Sequence[str]) -> list[EndedRun]:
    """Those of these runs that nobody else has taken. Whoever takes one tells all whom its end concerns."""
    parameters = {"told": encode_rows([(run_id,) for run_id in run_ids])}
    return [EndedRun(*row) for row in await transaction.rows(_TAKE, parameters)]


_ended_calls = batch("ended_calls", id=Id(), attempt=Integer())
_END_CALLS = (
    update(task_runs)
    .values(is_calling=False)
    .where(
        _t.id == _ended_calls.c.id,
        among(_t.id, select(_ended_calls.c.id).scalar_subquery()),
        _t.attempt == _ended_calls.c.attempt,
    )
)


async def end_calls(transaction: Transaction, calls: Sequence[tuple[str, int]]) -> None:
    """The runs that these attempts (task run id, attempt) have started are over. Their runs are locked."""
    await transaction.run(_END_CALLS, {"ended_calls": encode_rows(calls)})


class Orphan(NamedTuple):
    """An open run that nobody waits for any more, and why."""

    id: str
    reason: str | None


_above = workflow_runs.alias("above")
_calls = (
    select(
        _t.id,
        # Looked up one by one, so that it is always done by index.
        select(_r.id)
        .where(
            _r.parent_task_run_id == _t.id,
            _r.parent_attempt == _t.attempt,
            _r.status.in_(sorted(RUN_OPEN)),
            _r.cancel_requested_at.is_(None),
        )
        .scalar_subquery()
        .label("child_id"),
        select(_above.c.cancel_reason).where(_above.c.id == _t.run_id).scalar_subquery().label("reason"),
    )
    .where(flag(_t.is_calling), or_(_t.holder.is_(None), _t.cancel_requested_at.is_not(None)))
    .cte("calls")
    .prefix_with("MATERIALIZED")
)
_FIND_ORPHANS = (
    select(_calls.c.child_id, _calls.c.reason)
    .where(_calls.c.child_id.is_not(None))
    .order_by(_calls.c.id)
    .limit(_at_most)
)


async def find_orphans(transaction: Transaction, limit: int) -> list[Orphan]:
    """Open runs whose caller has ended or is being cancelled, and that have not been asked to stop themselves."""
    return [Orphan(*row) for row in await transaction.rows(_FIND_ORPHANS, {"at_most": limit})]
