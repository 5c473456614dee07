"""The ticks of a schedule: where they lie, which the calendar takes out, and how jitter moves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import lru_cache
from hashlib import blake2b

from rota.domain.cron import CronFire, DstGap, DstOverlap, is_hashed, load_cron, load_zone, next_fire, to_utc
from rota.domain.schedule import ScheduleSpec
from rota.domain.schedule_calendar import compile_exclusions

Tick = CronFire

_MOMENT = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
# A calendar that hides this many ticks in a row hides them all.
_MOST_HOPS = 1000


@dataclass(frozen=True, slots=True)
class ScheduleTicks:
    """The ticks of one schedule. `anchor`: where an interval without `start_at` counts from."""

    spec: ScheduleSpec
    seed: str
    anchor: datetime

    def next_raw(self, after: datetime) -> Tick | None:
        """The first tick after an instant within start_at and end_at, excluded days included."""
        spec = self.spec
        if spec.start_at is not None and after < spec.start_at:
            after = spec.start_at - _MOMENT
        tick = self._next_of_rule(after)
        if tick is None or (spec.end_at is not None and tick.at > spec.end_at):
            return None
        return tick

    def next_open(self, after: datetime) -> Tick | None:
        """The first tick after an instant that the calendar lets through."""
        tick = self.next_raw(after)
        for _ in range(_MOST_HOPS):
            if tick is None or not self.is_excluded(tick):
                return tick
            reopened_at = self._reopens_at(tick)
            tick = None if reopened_at is None else self.next_raw(max(tick.at, reopened_at - _MOMENT))
        return None

    def is_excluded(self, tick: Tick) -> bool:
        if not self.spec.calendar:
            return False
        local = tick.at.astimezone(load_zone(self.spec.timezone))
        return compile_exclusions(self.spec.calendar).has(local.date())

    def due_at(self, tick: Tick) -> datetime:
        """When to start: the tick plus a stable share of the jitter, always before the next tick."""
        if not self.spec.jitter_seconds:
            return tick.at
        room = timedelta(seconds=self.spec.jitter_seconds)
        following = self._next_of_rule(tick.at)
        if following is not None:
            room = min(room, following.at - tick.at)
        return tick.at + room * _share(self.seed)

    def take(self, after: datetime, until: datetime, count: int, *, is_open: bool) -> list[Tick]:
        """At most `count` ticks of (after, until], the oldest first."""
        step: Callable[[datetime], Tick | None] = self.next_open if is_open else self.next_raw
        found: list[Tick] = []
        tick = step(after)
        while tick is not None and tick.at <= until and len(found) < count:
            found.append(tick)
            tick = step(tick.at)
        return found

    def take_newest(self, after: datetime, until: datetime, count: int, *, is_open: bool) -> list[Tick]:
        """The newest `count` ticks of (after, until], found by halving the span instead of walking it."""
        found = self.take(after, until, count + 1, is_open=is_open)
        if len(found) <= count:
            return found
        too_many, few = after, until
        # Two ticks are never closer than a second, so a one-second bracket isolates the last one too many.
        while few - too_many > _SECOND:
            middle = too_many + (few - too_many) / 2
            if len(self.take(middle, until, count + 1, is_open=is_open)) > count:
                too_many = middle
            else:
                few = middle
        return self.take(too_many, until, count + 1, is_open=is_open)[-count:] if count else []

    def count_exactly(self, after: datetime, until: datetime) -> int | None:
        """The number of ticks in (after, until] where arithmetic alone can tell, else None."""
        if self.spec.interval_seconds is None or self.spec.calendar:
            return None
        first = self.next_raw(after)
        if self.spec.end_at is not None:
            until = min(until, self.spec.end_at)
        if first is None or first.at > until:
            return 0
        return (until - first.at) // self._interval() + 1

    def _next_of_rule(self, after: datetime) -> Tick | None:
        spec = self.spec
        if spec.cron is not None:
            seed = self.seed if is_hashed(spec.cron) else ""
            return _next_of_cron(spec.cron, seed, spec.timezone, after, spec.dst_gap, spec.dst_overlap)
        if spec.run_at is not None:
            return Tick(spec.run_at) if after < spec.run_at else None
        return self._next_interval(after)

    def _next_interval(self, after: datetime) -> Tick | None:
        first = to_utc(self.spec.start_at or self.anchor)
        if after < first:
            return Tick(first)
        step = self._interval()
        try:
            return Tick(first + ((after - first) // step + 1) * step)
        except OverflowError:
            return None

    def _interval(self) -> timedelta:
        return timedelta(seconds=self.spec.interval_seconds or 0.0)

    def _reopens_at(self, tick: Tick) -> datetime | None:
        """The start of the next day that is not excluded, on the schedule's own clock."""
        zone = load_zone(self.spec.timezone)
        day = compile_exclusions(self.spec.calendar).next_open_day(tick.at.astimezone(zone).date())
        return None if day is None else to_utc(datetime.combine(day, time(), tzinfo=zone))


@lru_cache(maxsize=32_768)
def _next_of_cron(
    text: str, seed: str, zone_name: str, after: datetime, dst_gap: DstGap, dst_overlap: DstOverlap
) -> Tick | None:
    """Remembered, because many schedules share an expression, and each tick is asked for several times."""
    cron = load_cron(text, seed=seed)
    return next_fire(cron, after, load_zone(zone_name), dst_gap=dst_gap, dst_overlap=dst_overlap)


def _share(seed: str) -> float:
    """A stable number in [0, 1) for a schedule."""
    return int.from_bytes(blake2b(f"{seed}\0jitter".encode(), digest_size=6).digest(), "big") / (1 << 48)
