"""When a cron expression fires in a time zone: instants in UTC, with gaps and overlaps decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from rota.domain.cron.expression import Cron
from rota.domain.cron.zones import Stretch, stretch_at, to_utc

DstGap = Literal["after", "skip", "before"]
DstOverlap = Literal["first", "second", "both"]

_LAST_YEAR = 9990
_SECOND = timedelta(seconds=1)
# No change of offset reaches further than a day: a tick beyond this cannot be repeated or skipped here.
_NEAR = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class CronFire:
    """One fire in UTC; `note` says what daylight saving did to it."""

    at: datetime
    note: str | None = None


def fires_after(
    cron: Cron,
    after: datetime,
    zone: ZoneInfo,
    *,
    dst_gap: DstGap = "after",
    dst_overlap: DstOverlap = "first",
) -> Iterator[CronFire]:
    """Every fire after an instant, strictly increasing."""
    fire = next_fire(cron, after, zone, dst_gap=dst_gap, dst_overlap=dst_overlap)
    while fire is not None:
        yield fire
        fire = next_fire(cron, fire.at, zone, dst_gap=dst_gap, dst_overlap=dst_overlap)


def next_fire(
    cron: Cron,
    after: datetime,
    zone: ZoneInfo,
    *,
    dst_gap: DstGap = "after",
    dst_overlap: DstOverlap = "first",
) -> CronFire | None:
    """The first fire after an instant, or None; a wildcard schedule follows elapsed time regardless."""
    if cron.is_wildcard:
        dst_gap, dst_overlap = "skip", "both"
    start = to_utc(after).replace(microsecond=0, tzinfo=None) + _SECOND
    # The stretch before: when `start` is the first instant after a gap, what fell into the gap comes first.
    stretch = stretch_at(zone, start - _SECOND)
    while start.year <= _LAST_YEAR:
        tick = cron.next_local(_first_local(stretch, start, dst_overlap) - _SECOND)
        if tick is not None and tick < _end_local(stretch, dst_overlap):
            at = (tick - stretch.offset).replace(tzinfo=UTC)
            return CronFire(at, _overlap_note(stretch, tick))
        if tick is not None and dst_gap != "skip" and tick < stretch.end + stretch.offset_after:
            at_gap = stretch.end if dst_gap == "after" else stretch.end - _SECOND
            if at_gap >= start:
                return CronFire(at_gap.replace(tzinfo=UTC), _gap_note(stretch, tick, at_gap, zone))
        if stretch.end - start < _NEAR:
            start = stretch.end
        elif tick is None:
            return None
        else:
            start = max(stretch.end, tick - stretch.offset - _NEAR)
        stretch = stretch_at(zone, start)
    return None


def _first_local(stretch: Stretch, start: datetime, dst_overlap: DstOverlap) -> datetime:
    """The wall-clock time to search from: past the repeated hour when only its first run counts."""
    local = start + stretch.offset
    if dst_overlap == "first":
        return max(local, stretch.start + max(stretch.offset, stretch.offset_before))
    return local


def _end_local(stretch: Stretch, dst_overlap: DstOverlap) -> datetime:
    """Where the stretch ends on the wall clock: before the repeated hour when only its second run counts."""
    if dst_overlap == "second":
        return stretch.end + min(stretch.offset, stretch.offset_after)
    return stretch.end + stretch.offset


def _overlap_note(stretch: Stretch, tick: datetime) -> str | None:
    if tick >= stretch.end + stretch.offset_after:
        return f"first of two {_clock(tick)}"
    if tick < stretch.start + stretch.offset_before:
        return f"second of two {_clock(tick)}"
    return None


def _gap_note(stretch: Stretch, tick: datetime, at: datetime, zone: ZoneInfo) -> str:
    local = at + (stretch.offset if at < stretch.end else stretch.offset_after)
    where = f"{_clock(tick)} does not exist on {tick:%Y-%m-%d} in {zone.key}"
    day = "" if local.date() == tick.date() else f"{local:%Y-%m-%d} "
    return f"{where}; runs at {day}{_clock(local)}"


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
