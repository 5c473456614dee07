"""Lanes: task runs that a claim may treat alike, because the same limits and the same demands apply to them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer, String, Text, select, union

from rota.store.database import Transaction
from rota.store.dialect import Id, batch, insert_new, within
from rota.store.encoding import encode_json, encode_rows
from rota.store.tables import lanes, workflows
from rota.store.tables_limits import pools

# Smaller ones are no lanes: nothing is claimed from them.
FIRST_LANE = 1


@dataclass(frozen=True, slots=True)
class Lane:
    """What the task runs of a lane have in common."""

    namespace: str
    queue: str
    kind: str
    labels: tuple[tuple[str, str], ...] = ()
    pool: str | None = None
    # Set when the workflow limits its active tasks.
    workflow_id: str | None = None
    pool_slots: int = 1

    @property
    def is_limited(self) -> bool:
        return self.pool is not None or self.workflow_id is not None

    def make_key(self) -> str:
        parts = [
            self.namespace,
            self.queue,
            self.kind,
            self.labels,
            self.pool,
            self.workflow_id,
            self.pool_slots,
        ]
        return hashlib.sha256(encode_json(parts).encode()).hexdigest()


_new = batch(
    "new_lanes",
    key=String(64),
    namespace=String(200),
    queue=String(200),
    kind=String(20),
    labels=Text(),
    pool=String(200),
    workflow_id=Id(),
    pool_slots=Integer(),
)
_CREATE = insert_new(lanes, dict(_new.c.items()))
_keys = batch("lane_keys", key=String(64))
_FIND = select(lanes.c.id, lanes.c.key).where(lanes.c.key.in_(select(_keys.c.key)))
_ids = batch("lane_ids", id=Integer())
_READ = select(lanes).where(lanes.c.id.in_(select(_ids.c.id)))


async def ensure_lanes(transaction: Transaction, wanted: Iterable[Lane]) -> dict[Lane, int]:
    """The ids of lanes, which are created where they do not exist."""
    by_key = {lane.make_key(): lane for lane in sorted(set(wanted), key=Lane.make_key)}
    keys = {"lane_keys": encode_rows([(key,) for key in by_key])}
    found = {by_key[row.key]: row.id for row in await transaction.rows(_FIND, keys)}
    missing = [(key, lane) for key, lane in by_key.items() if lane not in found]
    if not missing:
        return found
    rows = [
        (
            key,
            lane.namespace,
            lane.queue,
            lane.kind,
            encode_json(dict(lane.labels)),
            lane.pool,
            lane.workflow_id,
            lane.pool_slots,
        )
        for key, lane in missing
    ]
    await transaction.run(_CREATE, {"new_lanes": encode_rows(rows)})
    return {by_key[row.key]: row.id for row in await transaction.rows(_FIND, keys)}


async def read_lanes(transaction: Transaction, lane_ids: Sequence[int]) -> dict[int, Lane]:
    """The lanes with these ids. They never change."""
    rows = await transaction.rows(_READ, {"lane_ids": encode_rows([(lane_id,) for lane_id in lane_ids])})
    return {
        row.id: Lane(
            row.namespace,
            row.queue,
            row.kind,
            tuple(sorted(row.labels.items())),
            row.pool,
            row.workflow_id,
            row.pool_slots,
        )
        for row in rows
    }


_pools = batch("pool_names", namespace=String(200), name=String(200))
_POOLS = (
    select(pools.c.namespace, pools.c.name, pools.c.slots)
    .join(_pools, (_pools.c.namespace == pools.c.namespace) & (_pools.c.name == pools.c.name))
    .order_by(pools.c.namespace, pools.c.name)
)
_LOCK_POOLS = _POOLS.with_for_update(of=pools, skip_locked=True)
_limited = batch("limited_workflows", id=Id())
_WORKFLOWS = (
    select(workflows.c.id, workflows.c.max_active_tasks)
    .where(workflows.c.id.in_(select(_limited.c.id)))
    .order_by(workflows.c.id)
)
_LOCK_WORKFLOWS = _WORKFLOWS.with_for_update(skip_locked=True, key_share=True)
_facts = (lanes.c.id, lanes.c.namespace, lanes.c.pool, lanes.c.workflow_id, lanes.c.pool_slots)
# A lane that draws on limits of both kinds comes once.
_ALL_OF_LIMITS = union(
    select(*_facts).join(_pools, (_pools.c.namespace == lanes.c.namespace) & (_pools.c.name == lanes.c.pool)),
    select(*_facts).where(within(lanes.c.workflow_id, select(_limited.c.id).scalar_subquery())),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that were free to be looked at: sizes, and every lane that draws on them.

    A limit that another claim is looking at right now is left out.
    """

    pool_slots: Mapping[tuple[str, str], int]
    workflow_tasks: Mapping[str, int | None]
    lanes: Sequence[Any]


async def read_limits(
    transaction: Transaction, pool_names: Collection[tuple[str, str]], workflow_ids: Collection[str], *, locks: bool
) -> Limits:
    """Limits and who draws on them. With `locks`, no other claim fills the same slots; it never waits for one."""
    parameters = {
        "pool_names": encode_rows(sorted(set(pool_names))),
        "limited_workflows": encode_rows([(workflow_id,) for workflow_id in sorted(set(workflow_ids))]),
    }
    pool_rows: Sequence[Any] = ()
    workflow_rows: Sequence[Any] = ()
    if pool_names:
        pool_rows = await transaction.rows(_LOCK_POOLS if locks else _POOLS, {"pool_names": parameters["pool_names"]})
    if workflow_ids:
        workflow_rows = await transaction.rows(
            _LOCK_WORKFLOWS if locks else _WORKFLOWS, {"limited_workflows": parameters["limited_workflows"]}
        )
    return Limits(
        {(row.namespace, row.name): row.slots for row in pool_rows},
        {row.id: row.max_active_tasks for row in workflow_rows},
        await transaction.rows(_ALL_OF_LIMITS, parameters),
    )


_NAMED = select(pools.c.name).join(_pools, (_pools.c.namespace == pools.c.namespace) & (_pools.c.name == pools.c.name))


async def find_pools(transaction: Transaction, namespace: str, names: Iterable[str]) -> set[str]:
    """Which of these pools exist."""
    parameters = {"pool_names": encode_rows([(namespace, name) for name in sorted(set(names))])}
    return {row.name for row in await transaction.rows(_NAMED, parameters)}
