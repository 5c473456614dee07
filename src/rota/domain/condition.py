"""What the value of a condition (`when`) means."""

from __future__ import annotations

from typing import Any


def read_condition(value: Any) -> bool:
    """Whether this value says yes: as in Python, but text says neither. Raises ValueError."""
    if isinstance(value, str):
        shown = value if len(value) <= 50 else value[:50] + "…"
        raise ValueError(f"expected true or false, not the text {shown!r}: compare it with something")
    return bool(value)
