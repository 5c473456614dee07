"""Fair shares: which lanes a claim takes from, and how many task runs from each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

LimitKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Demand:
    """A lane that has queued work: of whom, how urgent its first one is, and which limits it draws on."""

    lane_id: int
    namespace: str
    head_rank: int
    limits: tuple[LimitKey, ...] = ()
    # What one task run takes of each of its limits.
    weights: tuple[int, ...] = ()


@dataclass(slots=True)
class FairShare:
    """Serves namespaces by turns: the one that has been served least goes first.

    A namespace that was idle does not collect credit: it starts level with the least served of the busy ones.
    """

    served: dict[str, float] = field(default_factory=dict)

    def allot(
        self, demands: Sequence[Demand], free: Mapping[LimitKey, int], *, limit: int, width: int
    ) -> list[tuple[int, int]]:
        """(lane, quota) for at most `width` lanes and `limit` task runs, within what is free of each limit."""
        left = dict(free)
        by_namespace: dict[str, list[Demand]] = {}
        for demand in sorted(demands, key=lambda demand: demand.head_rank):
            by_namespace.setdefault(demand.namespace, []).append(demand)
        self._level(by_namespace)
        quotas: list[tuple[int, int]] = []
        turns = sorted(by_namespace, key=lambda namespace: self.served[namespace])[: max(1, min(width, limit))]
        while turns and limit > 0 and len(quotas) < width:
            share = -(-limit // len(turns))
            namespace = turns.pop(0)
            for demand in by_namespace[namespace]:
                quota = min(share, limit, _fit(demand, left))
                if quota > 0 and len(quotas) < width - len(turns):
                    _take(demand, quota, left)
                    quotas.append((demand.lane_id, quota))
                    limit -= quota
                    share -= quota
        return quotas

    def serve(self, counts: Mapping[str, int]) -> None:
        """Books what has been given to each namespace."""
        for namespace, count in counts.items():
            self.served[namespace] = self.served.get(namespace, 0.0) + count

    def _level(self, busy: Iterable[str]) -> None:
        names = list(busy)
        known = [self.served[name] for name in names if name in self.served]
        floor = min(known, default=0.0)
        # Forgetting the idle ones keeps this small, and takes their credit away.
        self.served = {name: self.served.get(name, floor) - floor for name in names}


def _fit(demand: Demand, left: Mapping[LimitKey, int]) -> int:
    return min(
        (left.get(key, 0) // weight for key, weight in zip(demand.limits, demand.weights, strict=True)),
        default=1_000_000,
    )


def _take(demand: Demand, quota: int, left: dict[LimitKey, int]) -> None:
    for key, weight in zip(demand.limits, demand.weights, strict=True):
        left[key] -= quota * weight
