"""What is free of each limit: counted from live leases by the claim, and by explain in the same way."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rota.domain.share import LimitKey
from rota.engine.core import Core
from rota.store import claims, lanes, queues
from rota.store.database import Transaction
from rota.store.lanes import Lane, Limits
from rota.store.queues import QueueLimit, QueueName

UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Free:
    """What may start of each limit that could be looked at, and the queues among these limits."""

    slots: Mapping[LimitKey, int]
    queues: Mapping[QueueName, QueueLimit]


def limits_of(lane: Lane, limited_queues: Collection[QueueName] = ()) -> tuple[LimitKey, ...]:
    """The limits that a task run of this lane draws on."""
    keys: list[LimitKey] = []
    if lane.pool is not None:
        keys.append(("pool", f"{lane.namespace}/{lane.pool}"))
    if lane.workflow_id is not None:
        keys.append(("workflow", lane.workflow_id))
    if limited_queues and (lane.namespace, lane.queue) in limited_queues:
        keys.append(queue_key((lane.namespace, lane.queue)))
    return tuple(keys)


def queue_key(name: QueueName) -> LimitKey:
    return ("queue", "/".join(name))


async def find_limited_queues(core: Core, transaction: Transaction) -> frozenset[QueueName]:
    """The queues that are paused or have a rate. What another node has changed is known after a moment."""
    now = time.monotonic()
    if now - core.queues_read_at >= core.options.queue_memory_seconds:
        core.limited_queues = await queues.find_limited(transaction)
        core.queues_read_at = now
    return core.limited_queues


async def find_free(
    transaction: Transaction, wanted: Sequence[Lane], limited_queues: Collection[QueueName], *, locks: bool
) -> Free:
    """What is free of the limits of these lanes; with `locks`, without those that another claim is looking at."""
    slots: dict[LimitKey, int] = {}
    limited = [lane for lane in wanted if lane.is_limited]
    if limited:
        limits = await lanes.read_limits(
            transaction,
            [(lane.namespace, lane.pool) for lane in limited if lane.pool is not None],
            [lane.workflow_id for lane in limited if lane.workflow_id is not None],
            locks=locks,
        )
        running = await claims.count_running(transaction, [lane.id for lane in limits.lanes])
        slots = _subtract_use(limits, running)
    named = {(lane.namespace, lane.queue) for lane in wanted if (lane.namespace, lane.queue) in limited_queues}
    found = await queues.read_limits(transaction, named, locks=locks) if named else {}
    for name, limit in found.items():
        slots[queue_key(name)] = UNLIMITED if limit.free is None else limit.free
    return Free(slots, found)


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
