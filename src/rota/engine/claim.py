"""claim: gives queued task runs to a worker, fairly and within every limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.domain.share import Demand, LimitKey
from rota.domain.work import Assignment
from rota.engine.capacity import find_free, limits_of
from rota.engine.core import Core, WorkerFacts
from rota.engine.record import note_task, record
from rota.engine.render import make_assignments
from rota.store import claims
from rota.store.claims import Claimed, ReadyLane
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.lanes import FIRST_LANE
from rota.store.outcomes import Outcome

# A lane may hold less than its quota: what is left of the demand is taken from other lanes in further rounds.
MAX_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What was claimed; `is_contended` when a limit could not be looked at because another claim was doing so."""

    assignments: tuple[Assignment, ...] = ()
    is_contended: bool = False
    # Attempts that failed before they began: their templates cannot be rendered.
    refused: tuple[Outcome, ...] = ()


async def claim(core: Core, transaction: Transaction, worker: WorkerFacts, *, limit: int) -> ClaimResult:
    """Claims up to `limit` task runs that the worker may execute.

    Lanes without free capacity are left out before anything is counted, so a full pool never hides other work.
    """
    demands, free, is_contended = await _find_demands(core, transaction, worker)
    claimed: list[Claimed] = []
    remaining = dict(free)
    for _ in range(MAX_ROUNDS):
        wanted = limit - len(claimed)
        quotas = core.share.allot(demands, remaining, limit=wanted, width=claims.CLAIM_WIDTHS[-1]) if wanted else []
        if not quotas:
            break
        taken = await claims.claim_from_lanes(
            transaction,
            quotas,
            worker_id=worker.id,
            incarnation=worker.incarnation,
            lease_seconds=core.options.lease_seconds,
        )
        claimed += taken
        core.share.serve(Counter(row.namespace for row in taken))
        by_lane = Counter(row.lane_id for row in taken)
        # A lane that gave all it was asked for may have more; one that gave less is empty.
        full = {lane_id for lane_id, quota in quotas if by_lane[lane_id] == quota}
        asked = {lane_id for lane_id, _quota in quotas}
        remaining = _reduce(remaining, demands, by_lane)
        demands = [demand for demand in demands if demand.lane_id not in asked or demand.lane_id in full]
    if not claimed:
        return ClaimResult(is_contended=is_contended)
    await record(core, transaction, [_note_claim(row, worker) for row in claimed])
    if core.watch:
        core.watch.note_claims(transaction, worker.id, claimed)
    assignments, refused = await make_assignments(core, transaction, claimed, worker.incarnation)
    return ClaimResult(tuple(assignments), is_contended, tuple(refused))


def _note_claim(row: Claimed, worker: WorkerFacts) -> Change:
    details = {"attempt": row.attempt, "worker_id": worker.id}
    return note_task(row.id, row.run_id, row.namespace, "queued", "running", details)


def _reduce(free: Mapping[LimitKey, int], demands: Sequence[Demand], taken: Mapping[int, int]) -> dict[LimitKey, int]:
    left = dict(free)
    for demand in demands:
        for key, weight in zip(demand.limits, demand.weights, strict=True):
            left[key] -= taken.get(demand.lane_id, 0) * weight
    return left


async def _find_demands(
    core: Core, transaction: Transaction, worker: WorkerFacts
) -> tuple[list[Demand], dict[LimitKey, int], bool]:
    ready = await _walk_lanes(core, transaction)
    known = await core.find_lanes(transaction, [lane.lane_id for lane in ready])
    mine = [(lane, known[lane.lane_id]) for lane in ready if worker.may_take(known[lane.lane_id])]
    limited = [lane for _ready, lane in mine if lane.is_limited]
    free: dict[LimitKey, int] = {}
    is_contended = False
    if limited:
        free = await find_free(transaction, limited, locks=True)
        is_contended = any(key not in free for lane in limited for key in limits_of(lane))
    demands = []
    for entry, lane in mine:
        keys = limits_of(lane)
        weights = tuple(lane.pool_slots if key[0] == "pool" else 1 for key in keys)
        if all(free.get(key, 0) >= weight for key, weight in zip(keys, weights, strict=True)):
            demands.append(Demand(entry.lane_id, lane.namespace, entry.head_rank, keys, weights))
    return demands, free, is_contended


async def _walk_lanes(core: Core, transaction: Transaction) -> list[ReadyLane]:
    """The lanes with work. Where there are too many for one walk, each walk goes on where the last one stopped."""
    limit = core.options.lane_limit
    ready = await claims.find_ready_lanes(transaction, first_lane=core.first_lane, limit=limit)
    if len(ready) == limit:
        core.first_lane = ready[-1].lane_id + 1
    elif core.first_lane > FIRST_LANE:
        ready += await claims.find_ready_lanes(transaction, first_lane=FIRST_LANE, limit=limit - len(ready))
        core.first_lane = FIRST_LANE
    return list({lane.lane_id: lane for lane in ready}.values())
