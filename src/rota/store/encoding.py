"""Values as the statements carry them: JSON text, instants as microseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
ROWS = msgspec.json.Encoder()
NUL = re.compile(r"((?<!\\)(?:\\\\)*)\\u0000")


def encode_json(value: Any) -> str:
    """Compact JSON text."""
    return msgspec.json.encode(value).decode()


def decode_json(text: str | None) -> Any:
    """The value of JSON text; None of none."""
    return None if text is None else msgspec.json.decode(text)


def to_microseconds(moment: datetime | None) -> int | None:
    """An instant as a batch carries it."""
    return None if moment is None else (moment - EPOCH) // MICROSECOND


def encode_rows(rows: Sequence[Sequence[Any]]) -> str:
    """The value of a batch parameter (`dialect.batch`); a character that no database keeps is replaced."""
    try:
        encoded = ROWS.encode(rows).decode()
    except UnicodeEncodeError:
        encoded = ROWS.encode([[clean_text(v) if isinstance(v, str) else v for v in row] for row in rows]).decode()
    return NUL.sub(r"\1\\ufffd", encoded) if "\\u0000" in encoded else encoded


def clean_text(text: str) -> str:
    """The text with every character replaced that no database keeps: NUL, and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
