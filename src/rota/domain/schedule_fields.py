"""Reading the fields of a schedule one by one, collecting every fault instead of stopping at the first."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, time
from typing import TypeVar
from zoneinfo import available_timezones

from rota.domain.cron import load_zone
from rota.domain.errors import FieldError

_Word = TypeVar("_Word", bound=str)

_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)\s*([A-Z]+)\s*)+")
_BARE_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Z]+)")
_UNITS = {
    **dict.fromkeys(("S", "SEC", "SECOND", "SECONDS"), 1.0),
    **dict.fromkeys(("M", "MIN", "MINUTE", "MINUTES"), 60.0),
    **dict.fromkeys(("H", "HOUR", "HOURS"), 3600.0),
    **dict.fromkeys(("D", "DAY", "DAYS"), 86_400.0),
    **dict.fromkeys(("W", "WEEK", "WEEKS"), 604_800.0),
}
_LONGEST_SECONDS = 100 * 366 * 86_400.0
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
# These names mean something else on every machine, or nothing at all.
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory"})


class FieldReader:
    """Takes typed values out of a mapping; faults gather in `errors` and a default stands in."""

    def __init__(self, data: Mapping[str, object], path: str) -> None:
        self._data = data
        self._path = path
        self.errors: list[FieldError] = []

    def has(self, name: str) -> bool:
        """Whether a value was sent; null and an empty text count as not sent."""
        return self._data.get(name) not in (None, "")

    def path_of(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def word_of(self, names: Sequence[str]) -> str:
        """The synonym to name in a fault: the one that was sent, or the first."""
        return self._choose(names) or names[0]

    def fault(self, name: str, reason: str) -> None:
        self.errors.append(FieldError(self.path_of(name), reason))

    def refuse_unknown(self, known: Iterable[str]) -> None:
        allowed = sorted(known)
        for name in self._data:
            if name not in allowed:
                near = difflib.get_close_matches(str(name), allowed, n=1)
                hint = f"send {near[0]}" if near else "leave it out"
                self.fault(str(name), f"is not a field of a schedule; {hint}")

    def read_text(self, *names: str) -> str | None:
        name = self._choose(names)
        if name is None:
            return None
        value = self._data[name]
        if isinstance(value, str):
            return value
        self.fault(name, f"must be text, not {_kind_of(value)}")
        return None

    def read_texts(self, name: str) -> list[tuple[int, str]]:
        """The texts of a list with their places."""
        if not self.has(name):
            return []
        value = self._data[name]
        if not isinstance(value, list | tuple):
            self.fault(name, f"must be a list of texts, not {_kind_of(value)}")
            return []
        texts = []
        for number, item in enumerate(value):
            if isinstance(item, str):
                texts.append((number, item))
            else:
                self.fault(f"{name}[{number}]", f"must be text, not {_kind_of(item)}")
        return texts

    def read_choice(self, name: str, allowed: Sequence[_Word], default: _Word) -> _Word:
        value = self._data.get(name)
        if not self.has(name):
            return default
        for word in allowed:
            if value == word:
                return word
        self.fault(name, f"{value!r} is not known; send one of {', '.join(allowed)}")
        return default

    def read_number(self, name: str, default: float) -> float:
        """A duration in seconds, zero or more."""
        if not self.has(name):
            return default
        number = self._number(name, self._data[name], at_least=0.0)
        return default if number is None else number

    def read_count(self, name: str, default: int, *, at_most: int) -> int:
        if not self.has(name):
            return default
        value = self._data[name]
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= at_most:
            return value
        self.fault(name, f"must be a whole number from 1 to {at_most}")
        return default

    def read_optional_count(self, name: str) -> int | None:
        return self.read_count(name, 1, at_most=1_000_000) if self.has(name) else None

    def read_duration(self, *names: str, at_least: float) -> float | None:
        """Seconds as a number, or a text such as `90s`, `every 5m` or `1h30m`."""
        name = self._choose(names)
        if name is None:
            return None
        value = self._data[name]
        if isinstance(value, str):
            seconds = _read_duration_text(value)
            if seconds is None:
                self.fault(name, f"{value!r} is not a duration; send seconds, or a text such as 90s, 5m, 1h or 1d")
                return None
            value = seconds
        return self._number(name, value, at_least=at_least)

    def read_instant(self, *names: str, zone_name: str, is_end: bool = False) -> datetime | None:
        """An instant in UTC; without an offset it is the wall clock of the schedule's zone.

        A bare date means its first moment or, with `is_end`, its last.
        """
        name = self._choose(names)
        if name is None:
            return None
        value = self._data[name]
        if isinstance(value, str):
            value = _read_instant_text(value, is_end=is_end)
        if not isinstance(value, datetime):
            self.fault(name, "is not an instant; send RFC 3339 such as 2026-03-29T02:30:00Z")
            return None
        if not _FIRST_YEAR <= value.year <= _LAST_YEAR:
            self.fault(name, f"is out of range; send a year from {_FIRST_YEAR} to {_LAST_YEAR}")
            return None
        if value.utcoffset() is not None:
            return value.astimezone(UTC)
        return self._localize(name, value, zone_name)

    def read_zone(self, name: str, default: str) -> str:
        text = self.read_text(name)
        if text is None:
            return default
        if _is_zone(text):
            return text
        near = _near_zones(text)
        hint = f"did you mean {' or '.join(near)}?" if near else "send an IANA name such as Europe/Riga"
        self.fault(name, f"{text!r} is not a time zone; {hint}")
        return default

    def _choose(self, names: Sequence[str]) -> str | None:
        """The synonym that was sent, if any."""
        return next((name for name in names if self.has(name)), None)

    def _number(self, name: str, value: object, *, at_least: float) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(name, f"must be a number of seconds, not {_kind_of(value)}")
            return None
        if not at_least <= value <= _LONGEST_SECONDS or math.isnan(value):
            self.fault(name, f"must be at least {at_least:g} second(s) and at most 100 years")
            return None
        return float(value)

    def _localize(self, name: str, value: datetime, zone_name: str) -> datetime | None:
        local = value.replace(tzinfo=load_zone(zone_name), fold=0)
        instant = local.astimezone(UTC)
        if instant.astimezone(local.tzinfo).replace(tzinfo=None) != value.replace(fold=0):
            self.fault(name, f"{value.isoformat()} does not exist in {zone_name}; send an instant with an offset")
            return None
        return instant


def _is_zone(name: str) -> bool:
    if name in _NOT_ZONES:
        return False
    try:
        load_zone(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _near_zones(text: str) -> list[str]:
    by_lower = {name.lower(): name for name in sorted(available_timezones())}
    wanted = text.strip().lower().replace(" ", "_")
    cities = {lower.rpartition("/")[2]: name for lower, name in by_lower.items()}
    found = [name for name in (by_lower.get(wanted), cities.get(wanted)) if name is not None]
    close = difflib.get_close_matches(wanted, by_lower, n=3, cutoff=0.75)
    return list(dict.fromkeys(found + [by_lower[lower] for lower in close]))[:3]


def _read_duration_text(text: str) -> float | None:
    upper = text.strip().upper().removeprefix("@").removeprefix("EVERY").strip()
    if not _DURATION.fullmatch(upper):
        return None
    total = 0.0
    for amount, unit in _DURATION_PART.findall(upper):
        if unit not in _UNITS:
            return None
        total += float(amount) * _UNITS[unit]
    return total


def _read_instant_text(text: str, *, is_end: bool) -> datetime | None:
    is_bare_date = _BARE_DATE.fullmatch(text.strip()) is not None
    try:
        at = datetime.fromisoformat(text.strip())
        return datetime.combine(at, time.max) if is_bare_date and is_end else at
    except ValueError:
        return None


def _kind_of(value: object) -> str:
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
