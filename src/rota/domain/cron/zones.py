"""Time zones as stretches of constant offset, so that gaps and overlaps are plain comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A span of naive UTC time, `start` up to but not including `end`, with one offset.

    It ends at a change of offset or, with equal offsets on both sides, at the end of a year.
    """

    start: datetime
    end: datetime
    offset: timedelta
    offset_before: timedelta
    offset_after: timedelta


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name; KeyError, ValueError or OSError when there is none."""
    return ZoneInfo(name)


def to_utc(at: datetime) -> datetime:
    """The same instant in UTC; a naive datetime is a mistake of the caller."""
    if at.tzinfo is UTC:
        return at
    if at.utcoffset() is None:
        raise ValueError(f"{at.isoformat()} has no offset; pass an aware datetime")
    return at.astimezone(UTC)


def stretch_at(zone: ZoneInfo, instant: datetime) -> Stretch:
    """The stretch that holds a naive UTC instant."""
    for stretch in _stretches_of(zone, instant.year):
        if instant < stretch.end:
            return stretch
    raise AssertionError("a year's stretches reach its end")


@lru_cache(maxsize=4096)
def _stretches_of(zone: ZoneInfo, year: int) -> tuple[Stretch, ...]:
    first, end = datetime(year, 1, 1), datetime(year + 1, 1, 1)
    # One more day before, so that a change at the very start of the year is seen.
    edges = [first]
    offsets = [_offset_at(zone, first - _SECOND)]
    day = first - _SECOND
    while day < end:
        following = min(day + _DAY, end)
        if _offset_at(zone, following) != offsets[-1]:
            change = _find_change(zone, day, following)
            edges.append(change)
            offsets.append(_offset_at(zone, change))
        day = following
    edges.append(end)
    offsets.append(offsets[-1])
    return tuple(_build_stretches(edges, offsets))


def _build_stretches(edges: list[datetime], offsets: list[timedelta]) -> list[Stretch]:
    last = len(edges) - 2
    stretches = []
    for number in range(last + 1):
        start, end = edges[number], edges[number + 1]
        before = offsets[number - 1] if number else offsets[0]
        if start < end:
            stretches.append(Stretch(start, end, offsets[number], before, offsets[number + 1]))
    return stretches


def _find_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The first second in (low, high] whose offset differs from the one at `low`."""
    offset = _offset_at(zone, low)
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if _offset_at(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = zone.fromutc(instant.replace(tzinfo=zone)).utcoffset()
    return offset if offset is not None else timedelta(0)
