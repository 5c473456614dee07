"""Days on which a schedule stays silent: dates, ranges of dates and weekdays, in the schedule's zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_LONG_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_DATES = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:/([0-9]{4}-[0-9]{2}-[0-9]{2}))?")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The excluded days: weekdays (0 = Monday) and inclusive ranges of dates."""

    weekdays: frozenset[int]
    ranges: tuple[tuple[date, date], ...]

    def has(self, day: date) -> bool:
        """Whether the schedule is silent on that day."""
        return day.weekday() in self.weekdays or any(first <= day <= last for first, last in self.ranges)

    def next_open_day(self, day: date) -> date | None:
        """The first day from `day` on that is not excluded."""
        # Every hop leaves a range for good or passes at most six weekdays.
        for _ in range(8 * (len(self.ranges) + 1)):
            ends = [last for first, last in self.ranges if first <= day <= last]
            if not ends and day.weekday() not in self.weekdays:
                return day
            day = max(ends, default=day)
            if day == date.max:
                return None
            day += _DAY
        return None


def normalize_exclusion(text: str) -> str:
    """The canonical form of one exclusion; ValueError says what to send instead."""
    upper = text.strip().upper()
    if upper in WEEKDAYS:
        return upper
    if upper in _LONG_WEEKDAYS:
        return upper[:3]
    match = _DATES.fullmatch(upper)
    if match is None:
        raise ValueError(f"{text!r} is not a day; send 2026-12-25, 2026-12-24/2026-12-26 or a weekday such as SAT")
    first = _read_date(match[1])
    last = _read_date(match[2] or match[1])
    if last < first:
        raise ValueError(f"{text!r} ends before it starts; send the earlier date first")
    return f"{first.isoformat()}/{last.isoformat()}" if match[2] else first.isoformat()


@lru_cache(maxsize=4096)
def compile_exclusions(calendar: tuple[str, ...]) -> Exclusions:
    """The exclusions of a list of canonical texts."""
    weekdays = frozenset(WEEKDAYS.index(text) for text in calendar if text in WEEKDAYS)
    ranges = []
    for text in calendar:
        if text not in WEEKDAYS:
            first, _, last = text.partition("/")
            ranges.append((date.fromisoformat(first), date.fromisoformat(last or first)))
    return Exclusions(weekdays, tuple(sorted(ranges)))


def _read_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date of the calendar; send an existing day as YYYY-MM-DD") from None
