"""Which days of a month an expression means, as a bit mask: bit d stands for day d."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from rota.domain.cron.fields import MonthDay, NthWeekday

_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EVERY_SEVENTH = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28


def month_length(year: int, month: int) -> int:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and is_leap else _LENGTHS[month]


@dataclass(frozen=True, slots=True)
class DayRule:
    """Day-of-month and day-of-week together; `is_and`: both must match, otherwise either."""

    month_mask: int
    weekday_mask: int
    month_days: tuple[MonthDay, ...]
    nth_weekdays: tuple[NthWeekday, ...]
    is_and: bool

    def days_of(self, year: int, month: int) -> int:
        """The matching days of a month."""
        return self.days_in(date(year, month, 1).isoweekday() % 7, month_length(year, month))

    def days_in(self, first_weekday: int, length: int) -> int:
        """The matching days of a month that starts on `first_weekday` (0 = Sunday)."""
        by_month = self.month_mask
        for rule in self.month_days:
            by_month |= _day_of_rule(rule, first_weekday, length)
        by_weekday = _days_of_weekdays(first_weekday, self.weekday_mask)
        for nth in self.nth_weekdays:
            by_weekday |= _day_of_nth(nth, first_weekday, length)
        days = by_month & by_weekday if self.is_and else by_month | by_weekday
        return days & ((2 << length) - 2)


@lru_cache(maxsize=1024)
def _days_of_weekdays(first_weekday: int, weekdays: int) -> int:
    days = 0
    for weekday in range(7):
        if weekdays >> weekday & 1:
            days |= _EVERY_SEVENTH << ((weekday - first_weekday) % 7 + 1)
    return days


def _day_of_rule(rule: MonthDay, first_weekday: int, length: int) -> int:
    day = length - rule.number if rule.is_from_end else rule.number
    if not 1 <= day <= length:
        return 0
    if rule.is_nearest_weekday:
        day = _nearest_weekday(day, first_weekday, length)
    return 1 << day


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    """The Monday-to-Friday day nearest to `day`, without leaving the month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _day_of_nth(rule: NthWeekday, first_weekday: int, length: int) -> int:
    first = (rule.weekday - first_weekday) % 7 + 1
    if rule.nth == 0:
        return 1 << first + (length - first) // 7 * 7
    return 1 << first + (rule.nth - 1) * 7
