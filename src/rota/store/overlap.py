"""Statements on the open runs of schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, select

from rota.store.database import Transaction
from rota.store.dialect import Id, batch, within
from rota.store.encoding import encode_rows
from rota.store.tables import workflow_runs

_r = workflow_runs.c


class OpenRun(NamedTuple):
    """A run of a schedule that has not ended."""

    id: str
    schedule_id: str
    status: str


_asked = batch("asked_schedules", id=Id())
_OPEN = (
    select(_r.id, _r.schedule_id, _r.status)
    .where(
        within(_r.schedule_id, select(_asked.c.id).scalar_subquery()),
        _r.schedule_id.is_not(None),
        _r.finished_at.is_(None),
    )
    .order_by(_r.id)
    .with_for_update(key_share=True)
)


async def lock_open_runs(transaction: Transaction, schedule_ids: Sequence[str]) -> dict[str, list[OpenRun]]:
    """The open runs of each of these schedules, which are locked already; the runs are held until the commit."""
    parameters = {"asked_schedules": encode_rows([(schedule_id,) for schedule_id in schedule_ids])}
    found: dict[str, list[OpenRun]] = defaultdict(list)
    for row in await transaction.rows(_OPEN, parameters):
        found[row.schedule_id].append(OpenRun(*row))
    return found


_ANY_OPEN = (
    select(_r.id)
    .where(_r.schedule_id == bindparam("schedule", type_=Id()), _r.schedule_id.is_not(None), _r.finished_at.is_(None))
    .limit(1)
)


async def has_open_run(transaction: Transaction, schedule_id: str) -> bool:
    return await transaction.row(_ANY_OPEN, {"schedule": schedule_id}) is not None
