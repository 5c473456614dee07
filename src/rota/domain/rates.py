"""How many task runs of a queue may start: so many in so many seconds, with a burst."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

# Far below one start, and above the rounding of microseconds.
_NEARLY = 1e-4


@dataclass(frozen=True, slots=True)
class Rate:
    """`starts` in `seconds`; up to `burst` at once after a rest.

    All that has to be kept is one instant: when as many starts will have been earned as were made (`paid_at`).
    """

    starts: int
    seconds: float
    burst: int

    def count_free(self, paid_at: datetime | None, now: datetime) -> int:
        """How many may start now."""
        debt_seconds = max(0.0, (paid_at - now).total_seconds()) if paid_at else 0.0
        return max(0, int(self.burst - debt_seconds * self.starts / self.seconds + _NEARLY))

    def find_next(self, paid_at: datetime | None, now: datetime) -> datetime:
        """When at least one may start."""
        if paid_at is None:
            return now
        return max(now, paid_at - timedelta(seconds=(self.burst - 1) * self.seconds / self.starts))

    def pay(self, paid_at: datetime | None, now: datetime, count: int) -> datetime:
        """The instant to be kept after `count` have started."""
        return max(paid_at or now, now) + timedelta(seconds=count * self.seconds / self.starts)
