"""Statements on backfills: ranges of past ticks whose runs are made step by step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Integer, String, bindparam, case, func, insert, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.tables import workflow_runs
from rota.store.tables_time import backfills

_b = backfills.c
_r = workflow_runs.c


class BackfillRow(NamedTuple):
    id: str
    namespace: str
    workflow_id: str
    schedule_id: str | None
    version_id: str
    spec: dict[str, Any]
    anchor_at: datetime
    from_at: datetime
    until_at: datetime
    is_backward: bool
    is_only_missing: bool
    max_active: int
    max_runs: int | None
    params: dict[str, Any]
    status: str
    cursor_at: datetime
    tick_count: int | None
    created_count: int
    skipped_count: int
    created_at: datetime
    finished_at: datetime | None


_COLUMNS = [_b[name] for name in BackfillRow._fields]


async def insert_backfill(transaction: Transaction, values: dict[str, Any]) -> None:
    """Creates a backfill that is ready for its first step."""
    await transaction.run(insert(backfills).values(**values, status="running", created_at=NOW))


_LOCK = (
    select(*_COLUMNS)
    .where(_b.id == bindparam("wanted_id", type_=Id()), _b.namespace == bindparam("wanted_namespace", type_=String()))
    .with_for_update(key_share=True)
)


async def lock_backfill(transaction: Transaction, namespace: str, backfill_id: str) -> BackfillRow | None:
    """A backfill, held until the commit."""
    row = await transaction.row(_LOCK, {"wanted_id": backfill_id, "wanted_namespace": namespace})
    return BackfillRow(*row) if row else None


_GOING = (
    select(*_COLUMNS)
    .where(_b.status == constant("running"))
    .order_by(_b.id)
    .limit(bindparam("at_most", type_=Integer()))
    .with_for_update(skip_locked=True, key_share=True)
)


async def lock_going(transaction: Transaction, limit: int) -> list[BackfillRow]:
    """Backfills that go on; those that another node has are left out."""
    return [BackfillRow(*row) for row in await transaction.rows(_GOING, {"at_most": limit})]


_asked = batch("asked_backfills", id=Id())
_OPEN = (
    select(_r.backfill_id, func.count())
    .where(
        within(_r.backfill_id, select(_asked.c.id).scalar_subquery()),
        _r.backfill_id.is_not(None),
        _r.finished_at.is_(None),
    )
    .group_by(_r.backfill_id)
)


async def count_open(transaction: Transaction, backfill_ids: Sequence[str]) -> dict[str, int]:
    """How many runs of each backfill have not ended."""
    parameters = {"asked_backfills": encode_rows([(item,) for item in backfill_ids])}
    return {row[0]: row[1] for row in await transaction.rows(_OPEN, parameters)}


_moments = batch("moments", logical_date=Instant())
_PRESENT = select(_r.logical_date).where(
    _r.workflow_id == bindparam("workflow", type_=Id()),
    within(_r.logical_date, select(_moments.c.logical_date).scalar_subquery()),
    _r.status.in_(["pending", "running", "success"]),
)


async def find_present(transaction: Transaction, workflow_id: str, moments: Sequence[int]) -> set[datetime]:
    """For which of these logical times (as microseconds) a workflow has a run that succeeded or is open."""
    parameters = {"workflow": workflow_id, "moments": encode_rows([(moment,) for moment in moments])}
    return {row[0] for row in await transaction.rows(_PRESENT, parameters)}


_MOVE = (
    update(backfills)
    .values(
        cursor_at=bindparam("new_cursor", type_=Instant()),
        created_count=_b.created_count + bindparam("new_created", type_=Integer()),
        skipped_count=_b.skipped_count + bindparam("new_skipped", type_=Integer()),
    )
    .where(_b.id == bindparam("wanted_id", type_=Id()))
)


async def move_backfill(
    transaction: Transaction, backfill_id: str, cursor_at: datetime, *, created: int, skipped: int
) -> None:
    """Writes how far a backfill has come."""
    values = {"wanted_id": backfill_id, "new_cursor": cursor_at, "new_created": created, "new_skipped": skipped}
    await transaction.run(_MOVE, values)


_new_status = bindparam("new_status", type_=String())
_SET_STATUS = (
    update(backfills)
    .values(status=_new_status, finished_at=case((_new_status.in_(["done", "cancelled"]), NOW), else_=None))
    .where(_b.id == bindparam("wanted_id", type_=Id()))
)


async def set_status(transaction: Transaction, backfill_id: str, status: str) -> None:
    await transaction.run(_SET_STATUS, {"wanted_id": backfill_id, "new_status": status})


_OPEN_RUNS = select(_r.id).where(
    _r.backfill_id == bindparam("backfill", type_=Id()), _r.backfill_id.is_not(None), _r.finished_at.is_(None)
)


async def find_open_runs(transaction: Transaction, backfill_id: str) -> list[str]:
    return [row.id for row in await transaction.rows(_OPEN_RUNS, {"backfill": backfill_id})]
