"""The logs of attempts: a part as text, or all that is written as it is written."""

from __future__ import annotations

import asyncio
import codecs
from typing import Any

import msgspec

from rota.api.context import Api
from rota.api.live import StreamOver
from rota.api.lookup import require_task_run
from rota.api.schemas.runs import LogText
from rota.domain.events import EventType
from rota.store.reads import logs
from rota.store.reads.logs import LogPart
from rota.store.wakeups import Topic

READ_BYTES = 65_536
# What one task writes wakes up those who follow another: none of them looks more often than this.
PAUSE_SECONDS = 0.02
# The end of an attempt that says nothing more is noticed after this time at the latest.
POLL_SECONDS = 0.5


class LogTail:
    """Follows the log of an attempt: of the one that is named, or of the last one, once there is one."""

    def __init__(self, api: Api, namespace: str, task_run_id: str, attempt: int | None, offset: int) -> None:
        self._api = api
        self._namespace = namespace
        self._task_run_id = task_run_id
        self._attempt = attempt
        self._offset = offset

    def __enter__(self) -> LogTail:
        return self

    def __exit__(self, *_error: object) -> None:
        """There is nothing to give back."""

    @property
    def position(self) -> int:
        """Everything before this offset has been told."""
        return self._offset

    async def start(self) -> int:
        return self._offset

    async def read(self) -> bytes:
        """What has been written since the last call, as an event. Raises StreamOver at the end."""
        wakeups = self._api.database.wakeups
        while True:
            seen = wakeups.count(Topic.LOGS)
            # First its state, then its log: what a task wrote is there before its end is.
            row = await require_task_run(self._api, self._namespace, self._task_run_id)
            if self._attempt is None and (row.attempt or row.finished_at is not None):
                self._attempt = row.attempt
            if self._attempt is not None:
                found = await self._read_text(row, self._attempt)
                if found.text:
                    self._offset = found.next_offset
                    return _encode(found)
                if found.is_complete:
                    raise StreamOver
            await wakeups.wait(Topic.LOGS, seen, POLL_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _read_text(self, row: Any, attempt: int) -> LogText:
        part = await read_part(self._api, row.id, attempt, self._offset, READ_BYTES)
        return make_log_text(row, attempt, self._offset, part)


def _encode(found: LogText) -> bytes:
    payload = found.model_dump()
    document = msgspec.json.encode({"type": EventType.LOG, "seq": found.next_offset, "payload": payload})
    return b"id: %d\ndata: %s\n\n" % (found.next_offset, document)


def make_log_text(row: Any, attempt: int, offset: int, part: LogPart) -> LogText:
    """A part of the log as text; a character of which only a part has come is left for the next time."""
    is_over = attempt < row.attempt or row.status != "running"
    is_end = part.next_offset >= part.size
    text, next_offset = decode_log(part, offset, is_final=is_over and is_end)
    return LogText(
        task_run_id=row.id,
        attempt=attempt,
        offset=offset,
        next_offset=next_offset,
        size=part.size,
        is_complete=is_over and is_end,
        text=text,
    )


async def read_part(api: Api, task_run_id: str, attempt: int, offset: int, limit: int) -> LogPart:
    """Bytes of an attempt's log, from an offset on."""
    return await api.database.read(
        lambda tx: logs.read_log_part(tx, task_run_id, attempt, offset=offset, limit_bytes=limit)
    )


def decode_log(part: LogPart, offset: int, *, is_final: bool) -> tuple[str, int]:
    """The text, and where to go on: a character of which only a part has come is left for the next time."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts: list[str] = []
    end = offset
    for start, data in part.pieces:
        if start > end:
            # What comes after a gap is no continuation of a character before it.
            texts.append(decoder.decode(b"", final=True))
            decoder.reset()
        texts.append(decoder.decode(data))
        end = start + len(data)
    held = len(decoder.getstate()[0])
    if is_final or end - held <= offset:
        texts.append(decoder.decode(b"", final=True))
        held = 0
    return "".join(texts), max(offset, end - held)
