"""What is free of each limit: counted from live leases by the claim, and by explain in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.share import LimitKey
from rota.store import claims, lanes
from rota.store.database import Transaction
from rota.store.lanes import Lane, Limits

UNLIMITED = 1_000_000


def limits_of(lane: Lane) -> tuple[LimitKey, ...]:
    """The limits that a task run of this lane draws on."""
    keys: list[LimitKey] = []
    if lane.pool is not None:
        keys.append(("pool", f"{lane.namespace}/{lane.pool}"))
    if lane.workflow_id is not None:
        keys.append(("workflow", lane.workflow_id))
    return tuple(keys)


async def find_free(transaction: Transaction, limited: Sequence[Lane], *, locks: bool) -> dict[LimitKey, int]:
    """Free slots of the limits of these lanes; with `locks`, without those that another claim is looking at."""
    limits = await lanes.read_limits(
        transaction,
        [(lane.namespace, lane.pool) for lane in limited if lane.pool is not None],
        [lane.workflow_id for lane in limited if lane.workflow_id is not None],
        locks=locks,
    )
    running = await claims.count_running(transaction, [lane.id for lane in limits.lanes])
    return _subtract_use(limits, running)


def _subtract_use(limits: Limits, running: Mapping[int, int]) -> dict[LimitKey, int]:
    free: dict[LimitKey, int] = {
        ("pool", f"{namespace}/{name}"): slots for (namespace, name), slots in limits.pool_slots.items()
    }
    for workflow_id, size in limits.workflow_tasks.items():
        # A lane outlives the limit it was made for.
        free["workflow", workflow_id] = size if size is not None else UNLIMITED
    for lane in limits.lanes:
        used = running.get(lane.id, 0)
        pool_key = ("pool", f"{lane.namespace}/{lane.pool}")
        if pool_key in free:
            free[pool_key] -= used * lane.pool_slots
        if ("workflow", lane.workflow_id) in free:
            free["workflow", lane.workflow_id] -= used
    return free
