"""Statements on pools: named slots that limit how many attempts run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, String, Text, bindparam, delete, func, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, insert_new
from rota.store.tables import lanes, task_runs
from rota.store.tables_limits import pools
from rota.store.wakeups import Topic

_p = pools.c
_t = task_runs.c
_named = (
    _p.namespace == bindparam("of_namespace", type_=String()),
    _p.name == bindparam("of_name", type_=String()),
)
_CHANGE = (
    update(pools)
    .values(
        slots=bindparam("new_slots", type_=Integer()),
        description=bindparam("new_description", type_=Text()),
        updated_at=NOW,
    )
    .where(*_named)
    .returning(_p.name)
)
_CREATE = insert_new(
    pools,
    {
        "namespace": bindparam("of_namespace", type_=String()),
        "name": bindparam("of_name", type_=String()),
        "slots": bindparam("new_slots", type_=Integer()),
        "description": bindparam("new_description", type_=Text()),
        "created_at": NOW,
        "updated_at": NOW,
    },
)


async def put_pool(transaction: Transaction, namespace: str, name: str, *, slots: int, description: str) -> bool:
    """Makes the pool be so, whether it exists or not; True if it is new."""
    values = {"of_namespace": namespace, "of_name": name, "new_slots": slots, "new_description": description}
    is_new = await transaction.row(_CHANGE, values) is None
    if is_new:
        await transaction.run(_CREATE, values)
    transaction.wake(Topic.QUEUE)
    return is_new


_USED_LANES = select(lanes.c.id).where(lanes.c.namespace == _p.namespace, lanes.c.pool == _p.name)
_USED = (
    select(func.coalesce(func.sum(lanes.c.pool_slots), 0))
    .select_from(task_runs.join(lanes, lanes.c.id == _t.lane_id))
    .where(
        _t.status == "running",
        _t.is_limited,
        _t.holder.is_(None),
        lanes.c.namespace == _p.namespace,
        lanes.c.pool == _p.name,
    )
    .correlate(pools)
    .scalar_subquery()
)
_QUEUED = (
    select(func.count())
    .where(_t.status == "queued", _t.lane_id.in_(_USED_LANES.correlate(pools)))
    .correlate(pools)
    .scalar_subquery()
)
_READ = select(
    _p.namespace,
    _p.name,
    _p.slots,
    _p.description,
    _p.created_at,
    _p.updated_at,
    _USED.label("used_slots"),
    _QUEUED.label("queued"),
)
_LIST = _READ.where(_p.namespace == bindparam("of_namespace", type_=String())).order_by(_p.name)
_ONE = _READ.where(*_named)


async def read_pools(transaction: Transaction, namespace: str) -> Sequence[Any]:
    """The pools of a namespace, and how full they are."""
    return await transaction.rows(_LIST, {"of_namespace": namespace})


async def read_pool(transaction: Transaction, namespace: str, name: str) -> Any | None:
    return await transaction.row(_ONE, {"of_namespace": namespace, "of_name": name})


_DELETE = delete(pools).where(*_named)


async def delete_pool(transaction: Transaction, namespace: str, name: str) -> None:
    await transaction.run(_DELETE, {"of_namespace": namespace, "of_name": name})
