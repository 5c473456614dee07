"""Which ticks of a schedule run, which are skipped and why, and when to look again. Pure: `now` is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from rota.domain.cron import load_zone, to_utc
from rota.domain.schedule import ScheduleSpec
from rota.domain.schedule_ticks import ScheduleTicks, Tick

SkipReason = Literal["misfire", "over_catch_up_limit", "excluded_by_calendar"]

# A plan decides at most this many ticks that are not missed; missed ones are bounded by catch_up_limit.
CURRENT_MOST = 100
# Beyond this many ticks a long sleep is counted as "at least": planning stays a matter of milliseconds.
COUNT_MOST = 10_000
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Fire:
    """A tick that runs: its logical time, the instant to start at, and what DST did to it."""

    logical_at: datetime
    due_at: datetime
    note: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedTicks:
    """Ticks that do not run, in summary; with `is_count_exact` false there are at least `count`."""

    first_at: datetime
    last_at: datetime
    count: int
    reason: SkipReason
    is_count_exact: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """Every tick up to `cursor` is decided. `next_due_at` is the next wake-up; None: nothing will come."""

    fires: tuple[Fire, ...]
    skipped: tuple[SkippedTicks, ...]
    cursor: datetime
    next_due_at: datetime | None

    @property
    def is_finished(self) -> bool:
        return self.next_due_at is None


@dataclass(frozen=True, slots=True)
class PreviewFire:
    """One coming fire: the instant in UTC, the schedule's local time with offset, and a note."""

    at: datetime
    local: str
    note: str | None


def plan_fires(
    spec: ScheduleSpec,
    *,
    seed: str,
    anchor: datetime,
    cursor: datetime,
    now: datetime,
    horizon: datetime,
) -> Plan:
    """Decide every tick with cursor < logical time <= horizon, in portions of CURRENT_MOST (call again).

    A tick due before now - grace_seconds is missed and falls under `misfire`; all others run.
    """
    draft = _Draft(ScheduleTicks(spec, seed, to_utc(anchor)), to_utc(cursor))
    now, horizon = to_utc(now), to_utc(horizon)
    missed_until = _find_missed_end(draft, now - timedelta(seconds=spec.grace_seconds), horizon)
    if missed_until is not None:
        _decide_missed(draft, missed_until)
    if _decide_current(draft, horizon):
        draft.cursor = max(draft.cursor, min(now, horizon))
    following = draft.ticks.next_open(draft.cursor)
    return Plan(
        fires=tuple(draft.fires),
        skipped=tuple(sorted(draft.skips.values(), key=lambda skip: skip.first_at)),
        cursor=draft.cursor,
        next_due_at=None if following is None else draft.ticks.due_at(following),
    )


def preview(spec: ScheduleSpec, *, seed: str, anchor: datetime, start: datetime, count: int) -> tuple[PreviewFire, ...]:
    """The first `count` fires at or after `start`, with what DST and jitter do to them."""
    ticks = ScheduleTicks(spec, seed, to_utc(anchor))
    zone = load_zone(spec.timezone)
    found: list[PreviewFire] = []
    tick = ticks.next_open(to_utc(start) - _MOMENT)
    while tick is not None and len(found) < count:
        late_seconds = (ticks.due_at(tick) - tick.at).total_seconds()
        jitter = f"starts {late_seconds:.1f} s later (jitter)" if late_seconds else None
        notes = "; ".join(note for note in (tick.note, jitter) if note)
        found.append(PreviewFire(tick.at, tick.at.astimezone(zone).isoformat(), notes or None))
        tick = ticks.next_open(tick.at)
    return tuple(found)


@dataclass(slots=True)
class _Draft:
    """A plan in the making; skipped ticks gather in one row per reason."""

    ticks: ScheduleTicks
    cursor: datetime
    fires: list[Fire] = field(default_factory=list)
    skips: dict[SkipReason, SkippedTicks] = field(default_factory=dict)

    def fire(self, tick: Tick) -> None:
        self.fires.append(Fire(tick.at, self.ticks.due_at(tick), tick.note))

    def skip(self, reason: SkipReason, ticks: list[Tick], count: int, *, is_exact: bool = True) -> None:
        """Note `count` skipped ticks, of which the list holds at least the first and the last."""
        if not ticks:
            return
        first_at = ticks[0].at
        known = self.skips.get(reason)
        if known is not None:
            first_at, count, is_exact = known.first_at, known.count + count, known.is_count_exact and is_exact
        self.skips[reason] = SkippedTicks(first_at, ticks[-1].at, count, reason, is_exact)


def _find_missed_end(draft: _Draft, boundary: datetime, horizon: datetime) -> datetime | None:
    """The instant up to which ticks are missed, or None when none is."""
    boundary = min(boundary, horizon + _MOMENT)
    first = draft.ticks.next_raw(draft.cursor)
    if first is None or first.at >= boundary or draft.ticks.due_at(first) >= boundary:
        return None
    until = boundary - _MOMENT
    if draft.ticks.spec.jitter_seconds:
        # Jitter never reaches the next tick, so only the newest one can still be due after the boundary.
        newest = draft.ticks.take_newest(draft.cursor, until, 1, is_open=False)[-1]
        if draft.ticks.due_at(newest) >= boundary:
            until = newest.at - _MOMENT
    return until


def _decide_missed(draft: _Draft, until: datetime) -> None:
    """Apply `misfire` to the ticks of (cursor, until]: the newest that may run do, the others are skipped."""
    ticks, cursor = draft.ticks, draft.cursor
    draft.cursor = until
    keep = {"skip": 0, "latest": 1, "all": ticks.spec.catch_up_limit}[ticks.spec.misfire]
    kept = ticks.take_newest(cursor, until, keep, is_open=True)
    dropped_until = kept[0].at - _MOMENT if kept else until
    open_count, is_exact = _count_missed(draft, cursor, until)
    first = ticks.next_open(cursor)
    if first is not None and first.at <= dropped_until:
        last = ticks.take_newest(cursor, dropped_until, 1, is_open=True)[-1]
        reason: SkipReason = "over_catch_up_limit" if ticks.spec.misfire == "all" else "misfire"
        draft.skip(reason, [first, last], max(1, open_count - len(kept)), is_exact=is_exact)
    for tick in kept:
        draft.fire(tick)


def _count_missed(draft: _Draft, cursor: datetime, until: datetime) -> tuple[int, bool]:
    """Count the ticks that may run and note the excluded ones; beyond COUNT_MOST it is "at least"."""
    ticks = draft.ticks
    total = ticks.count_exactly(cursor, until)
    if total is not None:
        return total, True
    seen = ticks.take(cursor, until, COUNT_MOST + 1, is_open=False)
    excluded = [tick for tick in seen if ticks.is_excluded(tick)]
    is_exact = len(seen) <= COUNT_MOST
    draft.skip("excluded_by_calendar", excluded, len(excluded), is_exact=is_exact)
    return len(seen) - len(excluded), is_exact


def _decide_current(draft: _Draft, horizon: datetime) -> bool:
    """Fire the ticks up to the horizon; False when CURRENT_MOST cut the work short."""
    tick = draft.ticks.next_raw(draft.cursor)
    left = CURRENT_MOST
    while tick is not None and tick.at <= horizon:
        if not left:
            return False
        left -= 1
        if draft.ticks.is_excluded(tick):
            draft.skip("excluded_by_calendar", [tick], 1)
        else:
            draft.fire(tick)
        draft.cursor = tick.at
        tick = draft.ticks.next_raw(tick.at)
    return True
