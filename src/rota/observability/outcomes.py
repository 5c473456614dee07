"""How tasks have ended lately, as this process has seen it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 300.0
STEP_SECONDS = 10.0


@dataclass(slots=True)
class _Step:
    begun_at: float
    finished: int = 0
    failed: int = 0


class Outcomes:
    """Counts of the last five minutes, in steps, so that their number is bounded."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: deque[_Step] = deque()

    def add(self, count: int, *, are_failures: bool) -> None:
        """So many tasks have ended."""
        now = self._clock()
        if not self._steps or now - self._steps[-1].begun_at >= STEP_SECONDS:
            self._steps.append(_Step(now))
            self._forget(now)
        step = self._steps[-1]
        step.finished += count
        step.failed += count if are_failures else 0

    def count(self) -> tuple[int, int]:
        """How many have ended in the window, and how many of these failed for good."""
        self._forget(self._clock())
        return sum(step.finished for step in self._steps), sum(step.failed for step in self._steps)

    def _forget(self, now: float) -> None:
        while self._steps and now - self._steps[0].begun_at >= WINDOW_SECONDS:
            self._steps.popleft()
