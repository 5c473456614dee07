"""claim: gives queued task runs to a worker, fairly and within every limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rota.domain.share import Demand, LimitKey, in_portions
from rota.domain.work import Assignment
from rota.engine.capacity import find_free, find_limited_queues, limits_of, queue_key
from rota.engine.core import Core, WorkerFacts
from rota.engine.ready import ReadyLanes
from rota.engine.record import note_task, record
from rota.engine.render import make_assignments
from rota.store import claims, queues
from rota.store.claims import Claimed
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.lanes import FIRST_LANE, Lane
from rota.store.outcomes import Outcome
from rota.store.queues import QueueLimit, QueueName

# A lane may hold less than its quota: what is left of the demand is taken from other lanes in further rounds.
MAX_ROUNDS = 4
# A limit that another claim is looking at is free again within a transaction's time.
CONTENDED_SECONDS = 0.01
# Namespaces whose limits are looked at together, those that were served least first. What is full there hides nothing:
# then the next ones are looked at.
PORTIONS = (32, 256)


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What was claimed; `again_seconds` when there is more that may start after that time at the earliest."""

    assignments: tuple[Assignment, ...] = ()
    # A limit could not be looked at because another claim was doing so.
    is_contended: bool = False
    again_seconds: float | None = None
    # Attempts that failed before they began: their templates cannot be rendered.
    refused: tuple[Outcome, ...] = ()

    def choose_pause(self, longest: float) -> float:
        """How many seconds to wait for a wake-up before asking again."""
        if self.is_contended:
            return CONTENDED_SECONDS
        # At the instant itself another one may be a moment too early.
        return longest if self.again_seconds is None else min(longest, self.again_seconds + 0.001)


@dataclass(slots=True)
class _Taking:
    """What one claim has got so far, and where it takes from."""

    worker: WorkerFacts
    limit: int
    ready: ReadyLanes
    limited_queues: Collection[QueueName]
    claimed: list[Claimed] = field(default_factory=list)
    is_contended: bool = False
    again_seconds: list[float] = field(default_factory=list)


async def claim(core: Core, transaction: Transaction, worker: WorkerFacts, *, limit: int) -> ClaimResult:
    """Claims up to `limit` task runs that the worker may execute.

    Lanes without free capacity are left out before anything is counted, so a full pool never hides other work.
    """
    ready = core.find_ready(worker)
    taking = _Taking(worker, limit, ready, await find_limited_queues(core, transaction))
    is_whole = await _look(core, transaction, worker, ready)
    await _take(core, transaction, taking)
    if not taking.claimed and not is_whole:
        await _look_at_all(core, transaction, worker, ready)
        await _take(core, transaction, taking)
    again = min(taking.again_seconds, default=None)
    if not taking.claimed:
        return ClaimResult(is_contended=taking.is_contended, again_seconds=again)
    await record(core, transaction, [_note_claim(row, worker) for row in taking.claimed])
    if core.watch:
        core.watch.note_claims(transaction, worker.id, taking.claimed)
    assignments, refused = await make_assignments(core, transaction, taking.claimed, worker.incarnation)
    return ClaimResult(tuple(assignments), taking.is_contended, again, tuple(refused))


def _note_claim(row: Claimed, worker: WorkerFacts) -> Change:
    details = {"attempt": row.attempt, "worker_id": worker.id}
    return note_task(row.id, row.run_id, row.namespace, "queued", "running", details)


async def _look(core: Core, transaction: Transaction, worker: WorkerFacts, ready: ReadyLanes) -> bool:
    """Looks at the next lanes that have work; True if there are no others."""
    first = ready.next_lane
    seen = await claims.find_ready_lanes(transaction, first_lane=first, limit=ready.window)
    known = await core.find_lanes(transaction, [entry.lane_id for entry in seen])
    return ready.see(first, seen, {lane_id: lane for lane_id, lane in known.items() if worker.may_take(lane)})


async def _look_at_all(core: Core, transaction: Transaction, worker: WorkerFacts, ready: ReadyLanes) -> None:
    ready.next_lane = FIRST_LANE
    while not await _look(core, transaction, worker, ready) and ready.next_lane > FIRST_LANE:
        pass


async def _take(core: Core, transaction: Transaction, taking: _Taking) -> None:
    """Claims from the lanes that are known to have work."""
    for portion in in_portions(taking.ready.share.rank(), PORTIONS):
        demands = [
            _make_demand(lane_id, head_rank, taking.ready.lanes[lane_id], taking.limited_queues)
            for namespace in portion
            for lane_id, head_rank in taking.ready.heads.get(namespace, {}).items()
        ]
        await _take_portion(core, transaction, taking, demands)
        if len(taking.claimed) >= taking.limit:
            break


def _make_demand(lane_id: int, head_rank: int, lane: Lane, limited_queues: Collection[QueueName]) -> Demand:
    keys = limits_of(lane, limited_queues)
    weights = tuple(lane.pool_slots if key[0] == "pool" else 1 for key in keys)
    return Demand(lane_id, lane.namespace, head_rank, keys, weights)


async def _take_portion(core: Core, transaction: Transaction, taking: _Taking, demands: Sequence[Demand]) -> None:
    """Claims from the lanes of some namespaces, within what is free of their limits."""
    limited = [demand for demand in demands if demand.limits]
    remaining: dict[LimitKey, int] = {}
    limits: Mapping[QueueName, QueueLimit] = {}
    if limited:
        wanted = [lane for demand in limited if (lane := taking.ready.lanes.get(demand.lane_id)) is not None]
        free = await find_free(transaction, wanted, taking.limited_queues, locks=True)
        remaining, limits = dict(free.slots), free.queues
        taking.is_contended |= any(key not in remaining for demand in limited for key in demand.limits)
    by_lane = {demand.lane_id: demand for demand in demands}
    for _ in range(MAX_ROUNDS):
        left = taking.limit - len(taking.claimed)
        open_demands = list(by_lane.values())
        quotas = (
            taking.ready.share.allot(open_demands, remaining, limit=left, width=claims.CLAIM_WIDTHS[-1]) if left else []
        )
        if not quotas:
            break
        taken = await claims.claim_from_lanes(
            transaction,
            quotas,
            worker_id=taking.worker.id,
            incarnation=taking.worker.incarnation,
            lease_seconds=core.options.lease_seconds,
        )
        taking.claimed += taken
        taking.ready.share.serve(Counter(row.namespace for row in taken))
        counts = Counter(row.lane_id for row in taken)
        _reduce(remaining, by_lane, counts)
        # A lane that gave all it was asked for may have more; one that gave less is empty.
        for lane_id, quota in quotas:
            if counts[lane_id] < quota:
                del by_lane[lane_id]
                taking.ready.forget(lane_id)
    if limits:
        await _pay(transaction, taking, limits, remaining)


def _reduce(free: dict[LimitKey, int], by_lane: Mapping[int, Demand], taken: Mapping[int, int]) -> None:
    for lane_id, count in taken.items():
        demand = by_lane[lane_id]
        for key, weight in zip(demand.limits, demand.weights, strict=True):
            free[key] -= count * weight


async def _pay(
    transaction: Transaction,
    taking: _Taking,
    limits: Mapping[QueueName, QueueLimit],
    remaining: Mapping[LimitKey, int],
) -> None:
    """Keeps how much has started of the queues that have a rate, and when more may start."""
    payments: list[tuple[QueueName, datetime]] = []
    for name, limit in limits.items():
        if limit.rate is None or limit.is_paused:
            continue
        paid_at = limit.paid_at
        left = remaining[queue_key(name)]
        count = limit.rate.count_free(paid_at, limit.now) - left
        if count:
            paid_at = limit.rate.pay(paid_at, limit.now, count)
            payments.append((name, paid_at))
        if left <= 0:
            next_at = limit.rate.find_next(paid_at, limit.now)
            taking.again_seconds.append((next_at - limit.now).total_seconds())
    if payments:
        await queues.pay(transaction, payments)
