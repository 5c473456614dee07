"""A task's output: what it leaves for the tasks after it."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.outbound.replies import describe_size
from rota.worker.logs import TailBuffer
from rota.worker.options import MAX_OUTPUT_BYTES


class BadOutputError(Exception):
    """The output is not what the task promised; the message says what to do."""


def read_output(form: str, captured: TailBuffer | None) -> Any:
    """The output from what a program wrote to its standard output. `form`: json, text or none."""
    if captured is None or form == "none":
        return None
    if form == "text":
        if captured.total_bytes > MAX_OUTPUT_BYTES:
            raise BadOutputError(describe_size(captured.total_bytes, MAX_OUTPUT_BYTES))
        return captured.read().decode(errors="replace").rstrip("\r\n").replace("\0", "")
    line = find_last_line(captured.read())
    if len(line) > MAX_OUTPUT_BYTES:
        raise BadOutputError(describe_size(len(line), MAX_OUTPUT_BYTES))
    if not line:
        raise BadOutputError("output: json needs a line of JSON at the end of the standard output; it wrote none")
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = line[:200].decode(errors="replace")
        raise BadOutputError(f"the last line of the standard output is not JSON ({error}): {shown!r}") from None


def find_last_line(data: bytes) -> bytes:
    """The last line that is not blank."""
    return data.rstrip(b" \t\r\n\0").rpartition(b"\n")[2].strip()
