"""Statements that give queued task runs to workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Float, Integer, Select, String, bindparam, func, select, union_all, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, among, batch, constant, flag
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs

_t = task_runs.c


class ReadyLane(NamedTuple):
    lane_id: int
    head_rank: int


def _make_ready_lanes() -> Select[Any]:
    """Walks from lane to lane through the claim index: its cost grows with the lanes, not with the queue."""
    queued = task_runs.alias("queued")
    is_queued = queued.c.status == constant("queued")
    walk = select(
        select(func.min(queued.c.lane_id))
        .where(is_queued, queued.c.lane_id >= bindparam("first_lane", type_=Integer()))
        .scalar_subquery()
        .label("lane_id")
    ).cte("walk", recursive=True)
    following = select(func.min(queued.c.lane_id)).where(is_queued, queued.c.lane_id > walk.c.lane_id)
    walk = walk.union_all(select(following.scalar_subquery()).where(walk.c.lane_id.is_not(None)))
    head = select(func.min(queued.c.claim_rank)).where(is_queued, queued.c.lane_id == walk.c.lane_id)
    return (
        select(walk.c.lane_id, head.scalar_subquery().label("head_rank"))
        .where(walk.c.lane_id.is_not(None))
        .limit(bindparam("lane_limit", type_=Integer()))
    )


_READY_LANES = _make_ready_lanes()


async def find_ready_lanes(transaction: Transaction, *, first_lane: int, limit: int) -> list[ReadyLane]:
    """Lanes with queued task runs, from `first_lane` on, with the rank of the first in each."""
    rows = await transaction.rows(_READY_LANES, {"first_lane": first_lane, "lane_limit": limit})
    return [ReadyLane(row.lane_id, row.head_rank) for row in rows if row.head_rank is not None]


_in_use = batch("lanes_in_use", lane_id=Integer())
_COUNT_RUNNING = (
    select(_t.lane_id, func.count())
    .where(
        _t.status == constant("running"),
        flag(_t.is_limited),
        _t.holder.is_(None),
        _t.lane_id.in_(select(_in_use.c.lane_id)),
    )
    .group_by(_t.lane_id)
)


async def count_running(transaction: Transaction, lane_ids: Sequence[int]) -> dict[int, int]:
    """How many task runs hold a lease in each of these (limited) lanes."""
    parameters = {"lanes_in_use": encode_rows([(lane_id,) for lane_id in lane_ids])}
    return {row[0]: row[1] for row in await transaction.rows(_COUNT_RUNNING, parameters)}


class Claimed(NamedTuple):
    id: str
    run_id: str
    namespace: str
    task_id: str
    lane_id: int
    map_index: int
    attempt: int
    failure_count: int
    timeout_seconds: float | None
    logical_date: datetime
    queued_at: datetime
    started_at: datetime


# Statements exist for these numbers of lanes; smaller demands leave places empty.
CLAIM_WIDTHS = (1, 4, 16)


@cache
def _make_claim(width: int) -> Any:
    def take(place: int) -> Any:
        lane = (
            select(_t.id)
            .where(_t.status == constant("queued"), _t.lane_id == bindparam(f"lane_{place}", type_=Integer()))
            .order_by(_t.claim_rank, _t.id)
            .limit(bindparam(f"quota_{place}", type_=Integer()))
            .with_for_update(skip_locked=True)
            .subquery(f"place_{place}")
        )
        return select(lane.c.id)

    takes = [take(place) for place in range(width)]
    source: Any = union_all(*takes) if width > 1 else takes[0]
    picked = source.cte("picked")
    return (
        update(task_runs)
        .values(
            status="running",
            attempt=_t.attempt + 1,
            worker_id=bindparam("worker", type_=Id()),
            incarnation=bindparam("worker_incarnation", type_=String()),
            started_at=NOW,
            lease_expires_at=add_seconds(NOW, bindparam("lease_seconds", type_=Float())),
            due_at=None,
        )
        .where(
            _t.id == picked.c.id, among(_t.id, select(picked.c.id).scalar_subquery()), _t.status == constant("queued")
        )
        .returning(
            _t.id,
            _t.run_id,
            _t.namespace,
            _t.task_id,
            _t.lane_id,
            _t.map_index,
            _t.attempt,
            _t.failure_count,
            _t.timeout_seconds,
            _t.logical_date,
            _t.queued_at,
            _t.started_at,
        )
    )


async def claim_from_lanes(
    transaction: Transaction,
    quotas: Sequence[tuple[int, int]],
    *,
    worker_id: str,
    incarnation: str,
    lease_seconds: float,
) -> list[Claimed]:
    """Gives the first task runs of each (lane, quota) to a worker. Those that another claim holds are left out."""
    width = next(width for width in CLAIM_WIDTHS if width >= len(quotas))
    parameters: dict[str, Any] = {
        "worker": worker_id,
        "worker_incarnation": incarnation,
        "lease_seconds": lease_seconds,
    }
    for place in range(width):
        lane_id, quota = quotas[place] if place < len(quotas) else (-1, 0)
        parameters[f"lane_{place}"] = lane_id
        parameters[f"quota_{place}"] = quota
    return [Claimed(*row) for row in await transaction.rows(_make_claim(width), parameters)]
