"""A measurement, and how it stands to what must be reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure; `target` is what must be reached, with more or less being better."""

    name: str
    value: float
    unit: str
    target: float | None = None
    is_less_better: bool = False

    @property
    def is_reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.is_less_better else self.value >= self.target


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def describe(values: Sequence[float]) -> str:
    return f"p50 {statistics.median(values):.2f} p99 {percentile(values, 0.99):.2f}"
