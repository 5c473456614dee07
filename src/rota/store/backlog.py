"""Statements that count what waits to be done."""

from __future__ import annotations

from sqlalchemy import Integer, cast, func, select, union_all

from rota.store.concurrency import NO_LANE
from rota.store.database import Transaction
from rota.store.dialect import constant, flag
from rota.store.tables import lanes, schedules, task_runs, workflow_runs

_t = task_runs.c
_queued = (
    select(_t.lane_id, func.count().label("number"))
    .where(_t.status == constant("queued"))
    .group_by(_t.lane_id)
    .subquery("queued")
)
_in_lanes = select(lanes.c.namespace, _queued.c.number).join(_queued, _queued.c.lane_id == lanes.c.id)
_for_keys = (
    select(_t.namespace, func.count().label("number"))
    .where(_t.status == constant("queued"), _t.lane_id == NO_LANE)
    .group_by(_t.namespace)
)
_for_turns = (
    select(workflow_runs.c.namespace, func.count().label("number"))
    .where(workflow_runs.c.status == constant("pending"))
    .group_by(workflow_runs.c.namespace)
)
_for_time = (
    select(schedules.c.namespace, func.count().label("number"))
    .where(flag(schedules.c.is_active), schedules.c.next_due_at.is_not(None))
    .group_by(schedules.c.namespace)
)
_all = union_all(_in_lanes, _for_keys, _for_turns, _for_time).subquery("waiting")
_COUNT = select(_all.c.namespace, cast(func.sum(_all.c.number), Integer)).group_by(_all.c.namespace)


async def count_waiting(transaction: Transaction) -> dict[str, int]:
    """By namespace: task runs that wait in the queue, runs that wait for their turn, schedules for their time."""
    return {row[0]: row[1] for row in await transaction.rows(_COUNT)}
