"""Fair shares: which lanes a claim takes from, and how many task runs from each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeVar

LimitKey = tuple[str, str]
T = TypeVar("T")


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

    served: dict[str, int] = field(default_factory=dict)

    def enter(self, namespace: str) -> None:
        """The namespace has work."""
        self.served[namespace] = min(self.served.values(), default=0)

    def leave(self, namespace: str) -> None:
        """It has none (any more), and its credit is gone."""
        del self.served[namespace]

    def rank(self) -> list[str]:
        """The busy namespaces, the one that was served least first."""
        return sorted(self.served, key=self.served.__getitem__)

    def serve(self, counts: Mapping[str, int]) -> None:
        """Books what has been given to each namespace."""
        for namespace, count in counts.items():
            if namespace in self.served:
                self.served[namespace] += count

    def allot(
        self, demands: Sequence[Demand], free: Mapping[LimitKey, int], *, limit: int, width: int
    ) -> list[tuple[int, int]]:
        """(lane, quota) for at most `width` lanes and `limit` task runs, within what is free of each limit."""
        left = dict(free)
        by_namespace: dict[str, list[Demand]] = {}
        for demand in sorted(demands, key=attrgetter("head_rank")):
            if _fit(demand, left):
                by_namespace.setdefault(demand.namespace, []).append(demand)
        quotas: list[tuple[int, int]] = []
        turns = sorted(by_namespace, key=lambda name: self.served.get(name, 0))[: max(1, min(width, limit))]
        while turns and limit > 0 and len(quotas) < width:
            share = -(-limit // len(turns))
            for demand in by_namespace[turns.pop(0)]:
                quota = min(share, limit, _fit(demand, left))
                if quota > 0 and len(quotas) < width - len(turns):
                    _take(demand, quota, left)
                    quotas.append((demand.lane_id, quota))
                    limit -= quota
                    share -= quota
        return quotas


def in_portions(items: Sequence[T], sizes: Sequence[int]) -> Iterator[Sequence[T]]:
    """The first `sizes[0]`, then so many more, and at last the rest."""
    start = 0
    for size in (*sizes, len(items)):
        if start < len(items):
            yield items[start : start + size]
        start += size


def _fit(demand: Demand, left: Mapping[LimitKey, int]) -> int:
    return min(
        (left.get(key, 0) // weight for key, weight in zip(demand.limits, demand.weights, strict=True)),
        default=1_000_000,
    )


def _take(demand: Demand, quota: int, left: dict[LimitKey, int]) -> None:
    for key, weight in zip(demand.limits, demand.weights, strict=True):
        left[key] -= quota * weight
