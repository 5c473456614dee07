"""How much may wait to be done: beyond it nothing more is taken from callers. Ticks of schedules are always taken."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rota.domain.errors import CapacityExceeded, TooManyRequests
from rota.engine.core import Backlog, Core
from rota.observability.memory import read_memory
from rota.store import backlog
from rota.store.database import Transaction

# What waits is counted at most this often, and so that counting takes at most this part of the time.
COUNT_SECONDS = 1.0
COUNT_SHARE = 0.05
RETRY_AFTER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Capacity:
    """What is used, and what may be; a limit of 0 is none."""

    jobs_used: int
    jobs_limit: int
    memory_used_bytes: int
    memory_limit_bytes: int


async def require_room(core: Core, transaction: Transaction, counts: Mapping[str, int]) -> None:
    """Raises CapacityExceeded or TooManyRequests unless so much more may wait in these namespaces."""
    options = core.options
    limits = (options.queue_memory_bytes, options.queue_job_limit, options.namespace_backlog_limit)
    if not counts or not any(limits):
        return
    used_bytes = read_memory().used_bytes if options.queue_memory_bytes else 0
    if used_bytes > options.queue_memory_bytes:
        raise _refuse(
            core,
            "memory",
            f"this node keeps {used_bytes >> 20} MB of at most {options.queue_memory_bytes >> 20} MB "
            "(queue_memory_limit): try another node, wait, or raise the limit",
        )
    known = await _count(core, transaction)
    more = sum(counts.values())
    if options.queue_job_limit and known.total + more > options.queue_job_limit:
        raise _refuse(
            core,
            "jobs",
            f"{known.total} jobs wait and {more} more would be over the limit of {options.queue_job_limit} "
            "(queue_job_limit): wait until some are done, or raise it",
        )
    for namespace, count in counts.items():
        waiting = known.waiting.get(namespace, 0)
        if options.namespace_backlog_limit and waiting + count > options.namespace_backlog_limit:
            _count_refusal(core, "namespace")
            raise TooManyRequests(
                f"{waiting} jobs of namespace {namespace} wait and {count} more would be over its limit of "
                f"{options.namespace_backlog_limit} (namespace_backlog_limit): wait until some are done",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
    transaction.after_commit(lambda: known.add(counts))


def _refuse(core: Core, reason: str, sentence: str) -> CapacityExceeded:
    _count_refusal(core, reason)
    return CapacityExceeded(sentence)


def _count_refusal(core: Core, reason: str) -> None:
    if core.watch:
        core.watch.note_refusal(reason)


async def _count(core: Core, transaction: Transaction) -> Backlog:
    """What waits, as it was counted a moment ago."""
    begun = time.monotonic()
    known = core.backlog
    if begun >= known.count_again_at:
        # Whoever comes meanwhile goes by the last count.
        known.count_again_at = begun + COUNT_SECONDS
        known.waiting = await backlog.count_waiting(transaction)
        known.total = sum(known.waiting.values())
        ended = time.monotonic()
        known.count_again_at = ended + max(COUNT_SECONDS, (ended - begun) / COUNT_SHARE)
    return known


async def read_capacity(core: Core, transaction: Transaction) -> Capacity:
    """How full this node and its database are, as of a moment ago."""
    known = await _count(core, transaction)
    options = core.options
    capacity = Capacity(known.total, options.queue_job_limit, read_memory().used_bytes, options.queue_memory_bytes)
    if core.watch:
        core.watch.note_capacity(capacity.jobs_used, capacity.jobs_limit)
    return capacity
