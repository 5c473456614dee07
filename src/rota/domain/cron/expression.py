"""A whole cron expression: reading it, and finding the next match on the wall clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from rota.domain.cron import fields
from rota.domain.cron.days import DayRule
from rota.domain.cron.fields import CronFault, FieldKind, ParsedField, parse_field
from rota.domain.errors import FieldError, InvalidInput

# A 29 February on a given weekday comes back within 40 years, the 1900s and 2100s included.
_SEARCH_YEARS = 41
_LAST_YEAR = 9990
_LONGEST_TEXT = 1000
_KINDS = (fields.SECOND, fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY, fields.YEAR)
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """A compiled expression. `is_wildcard`: its minute or hour field starts with `*`."""

    text: str
    seed: str
    seconds: int
    minutes: int
    hours: int
    months: int
    years: int | None
    days: DayRule
    is_wildcard: bool

    def next_local(self, after: datetime) -> datetime | None:
        """The first match after a naive wall-clock time, or None when there is none."""
        start = after.replace(microsecond=0) + _EVERY_SECOND
        clock = self._next_clock(start.hour, start.minute, start.second)
        if clock is not None and self._matches_date(start):
            return start.replace(hour=clock[0], minute=clock[1], second=clock[2])
        day = self._next_day(start.year, start.month, start.day + 1)
        if day is None:
            return None
        return datetime(*day, _next_bit(self.hours, 0), _next_bit(self.minutes, 0), _next_bit(self.seconds, 0))

    def _matches_date(self, at: datetime) -> bool:
        if not self.months >> at.month & 1 or not self._has_year(at.year):
            return False
        return bool(self.days.days_of(at.year, at.month) >> at.day & 1)

    def _has_year(self, year: int) -> bool:
        if self.years is None:
            return True
        return fields.YEAR.low <= year <= fields.YEAR.high and bool(self.years >> (year - fields.YEAR.low) & 1)

    def _next_clock(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """The first matching time of day at or after the one given."""
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                found = _next_bit(self.seconds, second)
                if found >= 0:
                    return hour, minute, found
            found = _next_bit(self.minutes, minute + 1)
            if found >= 0:
                return hour, found, _next_bit(self.seconds, 0)
        found = _next_bit(self.hours, hour + 1)
        if found < 0:
            return None
        return found, _next_bit(self.minutes, 0), _next_bit(self.seconds, 0)

    def _next_day(self, year: int, month: int, day: int) -> tuple[int, int, int] | None:
        """The first matching date at or after the one given (whose day may be one too many)."""
        last_year = min(max(year, fields.YEAR.low) + _SEARCH_YEARS, _LAST_YEAR)
        if self.years is not None:
            last_year = fields.YEAR.high
        while year <= last_year:
            in_month = _next_bit(self.months, month) if self._has_year(year) else -1
            if in_month < 0:
                year, month, day = year + 1, 1, 1
                continue
            found = _next_bit(self.days.days_of(year, in_month), day if in_month == month else 1)
            if found >= 0:
                return year, in_month, found
            month, day = in_month + 1, 1
        return None


def parse_cron(text: str, *, seed: str = "", field: str = "schedule_cron") -> Cron:
    """Compile an expression; InvalidInput lists every faulty part, and refuses what can never match."""
    try:
        cron = load_cron(text, seed=seed)
    except CronFaults as faults:
        raise InvalidInput.of(FieldError(field, reason) for reason in faults.reasons) from None
    if not _is_possible(cron):
        raise InvalidInput.of([FieldError(field, _explain_impossible(cron))])
    return cron


class CronFaults(CronFault):
    """All the faults of one expression."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def load_cron(text: str, *, seed: str = "") -> Cron:
    """Compile an expression that was accepted before; one that never matches just has no next time."""
    return _compile(text, seed if is_hashed(text) else "")


@lru_cache(maxsize=16_384)
def is_hashed(text: str) -> bool:
    """Whether the schedule's id has a part in the times of an expression (`H`, `~`)."""
    return fields.is_hashed(text.upper())


@lru_cache(maxsize=16_384)
def _compile(text: str, seed: str) -> Cron:
    words = _split(text)
    is_and = words[5].startswith("+")
    words[5] = words[5].removeprefix("+")
    parsed: list[ParsedField] = []
    reasons: list[str] = []
    for kind, word in zip(_KINDS, words, strict=False):
        try:
            parsed.append(_parse_word(kind, word, seed))
        except CronFault as fault:
            reasons.append(str(fault))
    if reasons:
        raise CronFaults(reasons)
    second, minute, hour, day, month, weekday = parsed[:6]
    rule = DayRule(
        month_mask=day.mask,
        weekday_mask=weekday.mask,
        month_days=day.month_days,
        nth_weekdays=weekday.nth_weekdays,
        is_and=is_and or day.is_star or weekday.is_star,
    )
    return Cron(
        text=text,
        seed=seed,
        seconds=second.mask,
        minutes=minute.mask,
        hours=hour.mask,
        months=month.mask,
        years=parsed[6].mask if len(parsed) == 7 else None,
        days=rule,
        is_wildcard=minute.is_star or hour.is_star,
    )


def _parse_word(kind: FieldKind, word: str, seed: str) -> ParsedField:
    if word.startswith("+"):
        raise CronFault(f"{kind.name}: {word!r} has a + where none may stand; + is for the start of day-of-week only")
    return parse_field(kind, word, seed)


def _split(text: str) -> list[str]:
    """The six or seven upper-case fields of an expression: seconds first, year last."""
    if len(text) > _LONGEST_TEXT:
        raise CronFaults([f"the expression is longer than {_LONGEST_TEXT} characters; send a shorter one"])
    stripped = text.strip(" \t")
    if stripped.startswith("@"):
        stripped = _expand_nickname(stripped)
    words = [word for word in stripped.upper().replace("\t", " ").split(" ") if word]
    if words and "=" in words[0]:
        raise CronFaults([f"{words[0]!r} does not belong here; send the zone as `timezone`"])
    if len(words) == 5:
        words.insert(0, "0")
    if len(words) not in (6, 7):
        count = len(words)
        shape = "minute hour day-of-month month day-of-week, with seconds before and a year after if wanted"
        raise CronFaults([f"an expression has 5, 6 or 7 fields, this one has {count}; send {shape}"])
    return words


def _expand_nickname(text: str) -> str:
    if text in _NICKNAMES:
        return _NICKNAMES[text]
    name = text.split(maxsplit=1)[0]
    if name == "@reboot":
        raise CronFaults(["@reboot has no time; send a cron expression, or start the run from the machine's own boot"])
    if name.lower() == "@every":
        raise CronFaults(["@every is an interval; send `interval`, for example 90s, instead of cron"])
    raise CronFaults(
        [f"{text!r} is not a known nickname; send one of {', '.join(_NICKNAMES)}, alone and in lower case"]
    )


def _is_possible(cron: Cron) -> bool:
    if cron.years is not None:
        return cron._next_day(fields.YEAR.low, 1, 1) is not None
    for month in range(1, 13):
        lengths = (28, 29) if month == 2 else (31 if month in (1, 3, 5, 7, 8, 10, 12) else 30,)
        if not cron.months >> month & 1:
            continue
        if any(cron.days.days_in(first, length) for length in lengths for first in range(7)):
            return True
    return False


def _explain_impossible(cron: Cron) -> str:
    words = _split(cron.text)
    year = f" of {words[6]}" if len(words) == 7 else ""
    return (
        f"no date ever matches: day-of-month {words[3]} with day-of-week {words[5]} does not occur in month "
        f"{words[4]}{year}; send a day that exists there, for example L for the last day"
    )


def _next_bit(mask: int, start: int) -> int:
    """The lowest set bit at or above `start`, or -1."""
    rest = mask >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1
