"""What is read out of a reply: the output that it leaves, and when to ask again."""

from __future__ import annotations

import email.utils
from typing import Any

import msgspec

from rota.outbound.caller import Reply

MAX_RETRY_AFTER_SECONDS = 7 * 86_400.0


def read_body(form: str, reply: Reply, most_bytes: int) -> Any:
    """The output: JSON where the server says that it sends JSON, text otherwise."""
    if form == "none" or not reply.body:
        return None
    if reply.is_cut or len(reply.body) > most_bytes:
        raise ValueError(describe_size(len(reply.body), most_bytes))
    is_json = reply.content_type == "application/json" or reply.content_type.endswith("+json")
    if form == "json" and is_json:
        try:
            return msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"the response says that it is JSON, but it is not: {error}") from None
    return reply.body.decode(errors="replace").replace("\0", "")


def read_retry_after(text: str | None, now: float) -> float | None:
    """Seconds to wait, from either form of the header; None if there is none that makes sense."""
    if not text:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER_SECONDS)
    try:
        instant = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, instant - now), MAX_RETRY_AFTER_SECONDS)


def describe_size(size: int, most: int) -> str:
    """Why an output is too large, and what to do."""
    return (
        f"the output has at least {size:,} bytes, and {most:,} are allowed: "
        "write it to a file or an object store and return its address"
    )
