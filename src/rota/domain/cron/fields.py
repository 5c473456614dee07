"""One field of a cron expression: text in, a bit mask (and the rules a mask cannot hold) out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b

_NUMBER = re.compile(r"[0-9]{1,4}")
_HASH = re.compile(r"H(?:\(([^()]*)\))?")
_MONTH_DAY = re.compile(r"(?:([0-9]{1,2})|L(?:-([0-9]{1,2}))?)(W?)")
_NTH_WEEKDAY = re.compile(r"([A-Z]{3}|[0-9])(?:L|#([0-9L]+))")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class CronFault(ValueError):
    """A part of an expression that cannot be accepted; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class FieldKind:
    """The limits of a field. `hash_high`: the largest value that H and ~ choose by themselves."""

    name: str
    low: int
    high: int
    hash_high: int
    names: dict[str, int] = field(default_factory=dict, hash=False)


SECOND = FieldKind("second", 0, 59, 59)
MINUTE = FieldKind("minute", 0, 59, 59)
HOUR = FieldKind("hour", 0, 23, 23)
# Every month has a 28th: a hashed day must not make a schedule miss a month.
DAY = FieldKind("day-of-month", 1, 31, 28)
MONTH = FieldKind("month", 1, 12, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
WEEKDAY = FieldKind("day-of-week", 0, 6, 6, {name: number for number, name in enumerate(_WEEKDAYS)})
YEAR = FieldKind("year", 1970, 2199, 0)


@dataclass(frozen=True, slots=True)
class MonthDay:
    """A day counted from the start (`15W`) or the end (`L`, `L-3`) of the month."""

    number: int
    is_from_end: bool
    is_nearest_weekday: bool


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """The nth (1-5) or, with 0, the last such weekday of the month."""

    weekday: int
    nth: int


@dataclass(frozen=True, slots=True)
class ParsedField:
    """The values of a field; bit n stands for value n (for years: 1970 + n)."""

    mask: int
    is_star: bool = False
    month_days: tuple[MonthDay, ...] = ()
    nth_weekdays: tuple[NthWeekday, ...] = ()


def parse_field(kind: FieldKind, text: str, seed: str) -> ParsedField:
    """Read one upper-case field, or raise CronFault."""
    if text == "?" and kind in (DAY, WEEKDAY):
        text = "*"
    mask = 0
    month_days: list[MonthDay] = []
    nth_weekdays: list[NthWeekday] = []
    for item in text.split(","):
        special = _parse_special(kind, item)
        if isinstance(special, MonthDay):
            month_days.append(special)
        elif isinstance(special, NthWeekday):
            nth_weekdays.append(special)
        else:
            mask |= _parse_values(kind, item, seed)
    if kind is WEEKDAY and mask & 1 << 7:
        mask = mask & 0x7F | 1
    return ParsedField(mask, text.startswith("*"), tuple(month_days), tuple(nth_weekdays))


def is_hashed(text: str) -> bool:
    """Whether an upper-case expression depends on the seed."""
    return "~" in text or re.search(r"(?<![A-Z])H", text) is not None


def _parse_special(kind: FieldKind, item: str) -> MonthDay | NthWeekday | None:
    if kind is DAY and ("L" in item or "W" in item):
        return _parse_month_day(item)
    if kind is WEEKDAY and (item.endswith("L") or "#" in item):
        return _parse_nth_weekday(item)
    return None


def _parse_month_day(item: str) -> MonthDay:
    match = _MONTH_DAY.fullmatch(item)
    if match is None:
        raise CronFault(f"day-of-month: {item!r} is not understood; send a single day such as L, L-3, 15W or LW")
    day, from_end, nearest = match.groups()
    if day is not None:
        return MonthDay(_parse_value(DAY, day), False, True)
    number = int(from_end or 0)
    if number > 30:
        raise CronFault(f"day-of-month: {item!r} goes back more than a month; send L-1 to L-30")
    return MonthDay(number, True, bool(nearest))


def _parse_nth_weekday(item: str) -> NthWeekday:
    match = _NTH_WEEKDAY.fullmatch(item)
    if match is None:
        raise CronFault(f"day-of-week: {item!r} is not understood; send for example FRI#2, 5L or FRI#L")
    weekday, nth = match.groups()
    if nth not in (None, "L", "1", "2", "3", "4", "5"):
        raise CronFault(f"day-of-week: {item!r} asks for a week that no month has; send #1 to #5, or #L for the last")
    return NthWeekday(_parse_value(WEEKDAY, weekday) % 7, 0 if nth in (None, "L") else int(nth))


def _parse_values(kind: FieldKind, item: str, seed: str) -> int:
    base, slash, step_text = item.partition("/")
    step = _parse_step(kind, item, step_text) if slash else 0
    hashed = _hash_bounds(kind, base)
    if hashed is not None:
        return _choose(kind, *hashed, step=step, seed=seed)
    if base == "*":
        return _mask(kind, kind.low, kind.high, step or 1)
    if "-" in base:
        first, _, last = base.partition("-")
        return _mask(kind, *_parse_range(kind, base, first, last), step or 1)
    value = _parse_value(kind, base)
    if slash:
        raise CronFault(f"{kind.name}: a step needs a range; send {base}-{kind.high}/{step} instead of {item}")
    return _mask(kind, value, value, 1)


def _parse_step(kind: FieldKind, item: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) == 0:
        raise CronFault(f"{kind.name}: {item!r} has no usable step; send a number of 1 or more after the /")
    return int(text)


def _parse_range(kind: FieldKind, text: str, first: str, last: str) -> tuple[int, int]:
    low, high = _parse_value(kind, first), _parse_value(kind, last)
    if kind is WEEKDAY and last == "SUN":
        high = 7
    if low > high:
        limit = 7 if kind is WEEKDAY else kind.high
        wrapped = f"{first}-{limit},{kind.low}-{last}"
        raise CronFault(f"{kind.name}: the range {text} runs backwards; send {wrapped} if it should wrap around")
    return low, high


def _parse_value(kind: FieldKind, text: str) -> int:
    if text in kind.names:
        return kind.names[text]
    limit = 7 if kind is WEEKDAY else kind.high
    allowed = f"{kind.low}-{limit}" + (f" or {'/'.join(kind.names)}" if kind.names else "")
    if not _NUMBER.fullmatch(text):
        what = f"{text!r} is not understood" if text else "a value is missing"
        raise CronFault(f"{kind.name}: {what}; send {allowed}")
    if not kind.low <= int(text) <= limit:
        raise CronFault(f"{kind.name}: {text} is out of range; send {allowed}")
    return int(text)


def _hash_bounds(kind: FieldKind, base: str) -> tuple[int, int] | None:
    """The bounds between which H, H(a-b), a~b, a~, ~b or ~ choose; None for anything else."""
    match = _HASH.fullmatch(base)
    if match is None and "~" not in base:
        return None
    if kind is YEAR:
        raise CronFault("year: a year cannot be chosen by H or ~; send years such as 2027 or 2027-2030")
    if match is not None and match[1] is None:
        return kind.low, kind.hash_high
    first, _, last = match[1].partition("-") if match is not None else base.partition("~")
    if match is not None:
        return _parse_range(kind, base, first, last)
    return _parse_range(kind, base, first or str(kind.low), last or str(kind.hash_high))


def _choose(kind: FieldKind, low: int, high: int, *, step: int, seed: str) -> int:
    digest = blake2b(f"{seed}\0{kind.name}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    size = high - low + 1
    if not step:
        value = low + number % size
        return _mask(kind, value, value, 1)
    return _mask(kind, low + number % min(step, size), high, step)


def _mask(kind: FieldKind, low: int, high: int, step: int) -> int:
    shift = kind.low if kind is YEAR else 0
    return sum(1 << (value - shift) for value in range(low, high + 1, step))
