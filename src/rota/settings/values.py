"""Reading values as they come from flags, environment and file. Each reader raises ValueError with what is allowed."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def describe(read: Callable[[object], Any], about: str, *aliases: str) -> dict[str, Any]:
    """A setting; `read` turns what was given into a value or raises ValueError, saying what is allowed."""
    return {"read": read, "about": about, "aliases": aliases}


def read_text(given: object) -> str:
    """One line of text."""
    if not isinstance(given, str) or not given.strip().isprintable():
        raise ValueError("send one line of text")
    return given.strip()


def read_path(given: object) -> Path:
    """A file or folder; `~` is the home folder."""
    if isinstance(given, Path):
        return given.expanduser()
    if isinstance(given, str) and given and "\0" not in given:
        return Path(given).expanduser()
    raise ValueError("send a path")


def read_count(least: int, most: int) -> Callable[[object], int]:
    """A whole number between two bounds."""

    def read(given: object) -> int:
        allowed = f"send a whole number from {least} to {most}"
        if isinstance(given, bool) or not isinstance(given, int | str):
            raise ValueError(allowed)
        try:
            number = int(given)
        except ValueError:
            raise ValueError(allowed) from None
        if not least <= number <= most:
            raise ValueError(allowed)
        return number

    return read


read_port = read_count(0, 65_535)


_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)i?b?")


def read_size(given: object) -> int:
    """Bytes, as a number or as text such as `512MB`; thousands are 1,024."""
    found = _SIZE.fullmatch(str(given).strip().lower()) if isinstance(given, int | str) else None
    if isinstance(given, bool) or found is None:
        raise ValueError("send bytes, or text such as 512MB or 2GB")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " "))


def read_duration(least_seconds: float, most_seconds: float) -> Callable[[object], float]:
    """Seconds, as a number or as text such as `1h30m`."""
    allowed = (
        "send seconds, or text such as 500ms, 90s, 5m, 2h or 30d, "
        f"from {write_duration(least_seconds)} to {write_duration(most_seconds)}"
    )

    def read(given: object) -> float:
        seconds = parse_duration(given)
        if seconds is None or not least_seconds <= seconds <= most_seconds:
            raise ValueError(allowed)
        return seconds

    return read


def parse_duration(given: object) -> float | None:
    """Seconds, or None where that is no duration."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    if isinstance(given, int | float):
        return float(given) if math.isfinite(given) else None
    text = given.strip().lower()
    if _DURATION.fullmatch(text):
        return sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else None


def write_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms" if seconds else "0s"


def read_share(given: object) -> float:
    """A number from 0 to 1."""
    allowed = "send a number from 0 to 1"
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(allowed)
    try:
        number = float(given)
    except ValueError:
        raise ValueError(allowed) from None
    if not 0 <= number <= 1:
        raise ValueError(allowed)
    return number


def read_choice(allowed: Sequence[str]) -> Callable[[object], str]:
    """One of a few words, in any case."""

    def read(given: object) -> str:
        word = given.strip().lower() if isinstance(given, str) else ""
        if word not in allowed:
            raise ValueError(f"send one of {', '.join(allowed)}")
        return word

    return read


def read_words(given: object) -> tuple[str, ...]:
    """Words, as a list or with commas between."""
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("send words with commas between")
    words = tuple(word for item in items for word in item.replace(",", " ").split())
    if not words:
        raise ValueError("send at least one word")
    return tuple(dict.fromkeys(words))


def read_some(allowed: Sequence[str]) -> Callable[[object], tuple[str, ...]]:
    """Some of a few words."""

    def read(given: object) -> tuple[str, ...]:
        words = read_words(given)
        if not set(words) <= set(allowed):
            raise ValueError(f"send some of {', '.join(allowed)}, with commas between")
        return words

    return read


def read_folders(given: object) -> tuple[str, ...]:
    """Folders, as a list or with colons between."""
    items = given.split(":") if isinstance(given, str) else given
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and "\0" not in item for item in items):
        raise ValueError("send folders with colons between")
    return tuple(str(Path(item).expanduser()) for item in items if item)


def read_labels(given: object) -> dict[str, str]:
    """Labels, as a table or as `name=value` with commas between."""
    allowed = "send labels as name=value with commas between"
    if isinstance(given, Mapping):
        if not all(isinstance(name, str) and isinstance(value, str) for name, value in given.items()):
            raise ValueError(allowed)
        return dict(given)
    pairs = [word.partition("=") for word in read_words(given)]
    if not all(name and separator for name, separator, _ in pairs):
        raise ValueError(allowed)
    return {name: value for name, _, value in pairs}


def read_servers(given: object) -> tuple[str, ...]:
    """Addresses of servers; a bare `host:port` is plain HTTP."""
    found = []
    for word in read_words(given):
        url = word if "://" in word else f"http://{word}"
        parts = urlsplit(url)
        try:
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise ValueError("send addresses such as http://127.0.0.1:8080, with commas between")
        found.append(url.rstrip("/"))
    return tuple(found)


def read_networks(given: object) -> tuple[str, ...]:
    """Address ranges."""
    words = read_words(given)
    for word in words:
        try:
            ipaddress.ip_network(word, strict=False)
        except ValueError:
            raise ValueError("send address ranges such as 127.0.0.0/8 or fd00::/8, with commas between") from None
    return words
