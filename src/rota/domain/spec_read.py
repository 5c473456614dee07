"""Reading definitions: every fault is collected with its path, and none stops the reading of the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from rota.domain.errors import FieldError, InvalidInput

MAX_FAULTS = 1_000
# How many words one definition's unknown ones are compared with: a fraction of a second.
MAX_COMPARISONS = 5_000
MAX_DEPTH = 64
MAX_INTEGER = 2**63 - 1
ONE_YEAR_SECONDS = 31_536_000.0
_MAX_SHOWN = 60

Word = TypeVar("Word", bound=str)
# Answers why a string will not do, None when it will.
Check = Callable[[str], str | None]
_Crumb = tuple[Any, ...]


class Faults:
    """What is wrong so far, by path: of two faults at one place the first is the cause, the other an echo."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._comparisons_left = MAX_COMPARISONS

    @property
    def is_full(self) -> bool:
        return len(self._reasons) >= MAX_FAULTS

    def has_any_below(self, path: str) -> bool:
        return any(known.startswith(path) for known in self._reasons)

    def add(self, path: str, reason: str) -> None:
        if not self.is_full:
            self._reasons.setdefault(path, reason)

    def take(self, error: InvalidInput, *, path: str = "definition") -> None:
        """Takes over the faults that another reader has raised."""
        for fault in error.errors or (FieldError(path, error.detail),):
            self.add(fault.field, fault.reason)

    def suggest(self, word: Any, known: Collection[str]) -> str:
        """`; did you mean "…"?` for a word close to a known one. Looking costs time, so there is a budget."""
        if not isinstance(word, str) or len(word) > _MAX_SHOWN or len(known) > self._comparisons_left:
            return ""
        self._comparisons_left -= len(known)
        close = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
        return f'; did you mean "{close[0]}"?' if close else ""

    def raise_if_any(self) -> None:
        if self._reasons:
            raise InvalidInput.of(FieldError(path, reason) for path, reason in self._reasons.items())


class Reader:
    """The fields of one JSON object. A field that is absent or null has its default; a faulty one is reported
    and has its default too, so that reading goes on."""

    def __init__(self, data: Mapping[str, Any], path: str, faults: Faults) -> None:
        self.data = data
        self.path = path
        self.faults = faults

    def locate(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def report(self, name: str, reason: str) -> None:
        self.faults.add(self.locate(name), reason)

    def has(self, name: str) -> bool:
        return self.data.get(name) is not None

    def refuse_unknown(self, known: Collection[str]) -> None:
        for name in self.data:
            if name not in known and not self.faults.is_full:
                self.report(show(name, quote=False), "there is no such field" + self.faults.suggest(name, known))

    def text(
        self,
        name: str,
        *,
        longest: int = 1_000,
        check: Check | None = None,
        is_empty_allowed: bool = False,
    ) -> str | None:
        """A string of up to `longest` bytes of UTF-8; `check` answers what is wrong with it, if anything."""
        value = self.data.get(name)
        if value is None:
            return None
        reason = find_text_fault(value, longest=longest, is_empty_allowed=is_empty_allowed)
        if reason is None and check is not None:
            reason = check(value)
        if reason is not None:
            self.report(name, reason)
            return None
        return str(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.report(name, f"expected true or false, not {show(value)}")
            return default
        return value

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.report(name, f"expected a whole number, not {show(value)}")
            return default
        return int(value) if self._is_within(name, value, least, most) else default

    def number(self, name: str, default: float, *, least: float, most: float) -> float:
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.report(name, f"expected a number, not {show(value)}")
            return default
        return float(value) if self._is_within(name, value, least, most) else default

    def _is_within(self, name: str, value: float, least: float, most: float) -> bool:
        # NaN fails both comparisons.
        if least <= value <= most:
            return True
        self.report(name, f"expected a number from {least:,} to {most:,}, not {show(value)}")
        return False

    def limit(self, name: str, default: int | None, *, most: int) -> int | None:
        """A whole number where 0 says "no limit"."""
        return self.integer(name, default or 0, least=0, most=most) or None

    def duration(self, name: str) -> float | None:
        """Seconds, up to a year, where 0 (or nothing) says "no limit"."""
        return self.number(name, 0.0, least=0.0, most=ONE_YEAR_SECONDS) or None

    def choice(self, name: str, default: Word, options: Iterable[Word]) -> Word:
        value = self.data.get(name)
        if value is None:
            return default
        words = tuple(options)
        for word in words:
            if value == word:
                return word
        hint = self.faults.suggest(value, words)
        self.report(name, f"expected one of {', '.join(words)}, not {show(value)}{hint}")
        return default

    def items(self, name: str, *, most: int) -> Sequence[Any]:
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.report(name, f"expected a list, not {show(value)}")
            return ()
        if len(value) > most:
            self.report(name, f"at most {most:,} items are allowed, not {len(value):,}")
            return ()
        return value

    def texts(
        self,
        name: str,
        *,
        most: int,
        longest: int = 1_000,
        check: Check | None = None,
        is_empty_allowed: bool = False,
    ) -> tuple[str, ...]:
        found = []
        for index, value in enumerate(self.items(name, most=most)):
            reason = find_text_fault(value, longest=longest, is_empty_allowed=is_empty_allowed)
            if reason is None and check is not None:
                reason = check(value)
            if reason is None:
                found.append(value)
            else:
                self.report(f"{name}[{index}]", reason)
        return tuple(found)

    def mapping(self, name: str, *, most: int = 1_000) -> Mapping[str, Any]:
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.report(name, f"expected an object, not {show(value)}")
            return {}
        if len(value) > most:
            self.report(name, f"at most {most:,} entries are allowed, not {len(value):,}")
            return {}
        return value

    def text_map(self, name: str, *, key_check: Check, longest: int, most: int = 1_000) -> dict[str, str]:
        found = {}
        for key, value in self.mapping(name, most=most).items():
            reason = find_text_fault(key, longest=1_000) or key_check(key)
            reason = reason or find_text_fault(value, longest=longest, is_empty_allowed=True)
            if reason is None:
                found[key] = value
            else:
                self.report(f"{name}.{show(key, quote=False)}", reason)
        return found

    def child(self, name: str) -> Reader:
        """A reader of the object in this field, of an empty one if there is none."""
        return Reader(self.mapping(name), self.locate(name), self.faults)

    def children(self, name: str, *, most: int) -> list[Reader]:
        """Readers of the objects in this list; what is not an object is reported."""
        found = []
        for index, value in enumerate(self.items(name, most=most)):
            if isinstance(value, Mapping):
                found.append(Reader(value, self.locate(f"{name}[{index}]"), self.faults))
            else:
                self.report(f"{name}[{index}]", f"expected an object, not {show(value)}")
        return found


def show(value: Any, *, quote: bool = True) -> str:
    """A value as an error message shows it: short and printable."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return "a huge number"
    text = value if isinstance(value, str) else repr(value)
    short = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    safe = "".join(character if character.isprintable() else "\ufffd" for character in short)
    return f'"{safe}"' if quote and isinstance(value, str) else safe


def find_text_fault(value: Any, *, longest: int, is_empty_allowed: bool = False) -> str | None:
    """Why this is not a string of up to `longest` bytes."""
    if not isinstance(value, str):
        return f"expected a string, not {show(value)}"
    if not value and not is_empty_allowed:
        return "must not be empty"
    # A character has at most four bytes; most strings are far from the limit and need no encoding.
    if len(value) * 4 > longest and len(value.encode(errors="replace")) > longest:
        return f"at most {longest:,} bytes are allowed"
    return None


def check_pattern(pattern: re.Pattern[str], wanted: str) -> Check:
    """A check that the whole string matches; `wanted` says in words what does."""

    def check(value: str) -> str | None:
        return None if pattern.fullmatch(value) else f"expected {wanted}, not {show(value)}"

    return check


def is_template(text: str) -> bool:
    """Whether the value is known only when a run renders it, so that it cannot be checked now."""
    return "{{" in text or "{%" in text


def has_template(value: Any) -> bool:
    """Whether there is a template anywhere in this."""
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, Mapping):
        return any(has_template(item) for item in value.values())
    return isinstance(value, list | tuple) and any(has_template(item) for item in value)


def scan_json(data: Any, faults: Faults) -> None:
    """Reports whatever cannot be stored anywhere in the data: NUL and lone surrogates, NaN and infinities,
    huge integers, nesting beyond MAX_DEPTH, and what is no JSON. Raises if the data cannot even be walked
    like JSON: nested too deep, or with field names that are not strings."""
    # (value, crumb), where a crumb is (parent crumb, key, depth): the path is spelt out only for a fault.
    stack: list[tuple[Any, _Crumb]] = [(data, (None, "", 0))]
    while stack:
        value, crumb = stack.pop()
        if isinstance(value, str):
            reason = _find_character_fault(value)
        elif isinstance(value, Mapping | list | tuple):
            reason = _push_children(value, crumb, stack)
        else:
            reason = _find_scalar_fault(value)
        if reason is not None:
            faults.add(_spell(crumb), reason)
            if isinstance(value, Mapping | list | tuple):
                faults.raise_if_any()


def _push_children(
    value: Mapping[Any, Any] | Sequence[Any], crumb: _Crumb, stack: list[tuple[Any, _Crumb]]
) -> str | None:
    depth = crumb[2] + 1
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if not isinstance(value, Mapping):
        stack.extend((item, (crumb, index, depth)) for index, item in enumerate(value))
        return None
    for key, item in value.items():
        reason = _find_character_fault(key) if isinstance(key, str) else "is not a string"
        if reason is not None:
            return f"the field name {show(key)} {reason}"
        stack.append((item, (crumb, key, depth)))
    return None


def _find_character_fault(text: str) -> str | None:
    if "\0" in text:
        return "must not contain a NUL character"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode: it contains half of a surrogate pair"
    return None


def _find_scalar_fault(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if abs(value) <= MAX_INTEGER else "the number does not fit into 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "NaN and infinities are not allowed"
    return f"expected JSON, not {type(value).__name__}"


def _spell(crumb: _Crumb) -> str:
    parts: list[str] = []
    current: _Crumb | None = crumb
    while current is not None and current[0] is not None:
        key = current[1]
        parts.append(f"[{key}]" if isinstance(key, int) else f".{show(key, quote=False)}")
        current = current[0]
    return "".join(reversed(parts)).lstrip(".") or "definition"
