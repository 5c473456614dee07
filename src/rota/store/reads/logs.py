"""The logs of attempts: bytes by offset."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Integer, bindparam, func, select

from rota.store.database import Transaction
from rota.store.dialect import Id
from rota.store.tables import task_logs

ROWS_PER_STATEMENT = 64

_l = task_logs.c
_of_attempt = (
    _l.task_run_id == bindparam("log_of", type_=Id()),
    _l.attempt == bindparam("log_attempt", type_=Integer()),
)
_from = bindparam("from_offset", type_=BigInteger())
# The chunk in which the offset lies begins before it.
_START = select(func.max(_l.offset)).where(*_of_attempt, _l.offset <= _from)
_CHUNKS = (
    select(_l.offset, _l.data)
    .where(*_of_attempt, _l.offset >= _from)
    .order_by(_l.offset)
    .limit(bindparam("chunk_limit", type_=Integer()))
)
_LAST = select(_l.offset, func.length(_l.data).label("size")).where(*_of_attempt).order_by(_l.offset.desc()).limit(1)


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of an attempt's log: pieces with their offsets, and where to go on reading."""

    pieces: tuple[tuple[int, bytes], ...]
    next_offset: int
    # Bytes that the attempt has written so far, those left out included.
    size: int


async def read_log_part(
    transaction: Transaction, task_run_id: str, attempt: int, *, offset: int, limit_bytes: int
) -> LogPart:
    """Up to `limit_bytes` from `offset` on."""
    key = {"log_of": task_run_id, "log_attempt": attempt}
    size = await read_log_size(transaction, task_run_id, attempt)
    start = await transaction.row(_START, {**key, "from_offset": offset})
    position = offset if start is None or start[0] is None else int(start[0])
    pieces: list[tuple[int, bytes]] = []
    left = limit_bytes
    while left > 0:
        rows = await transaction.rows(_CHUNKS, {**key, "from_offset": position, "chunk_limit": ROWS_PER_STATEMENT})
        for row in rows:
            begin = max(row.offset, offset)
            data = bytes(row.data)[begin - row.offset :][:left]
            if data:
                pieces.append((begin, data))
                left -= len(data)
            position = row.offset + 1
        if len(rows) < ROWS_PER_STATEMENT:
            break
    next_offset = pieces[-1][0] + len(pieces[-1][1]) if pieces else max(offset, min(offset, size))
    return LogPart(tuple(pieces), next_offset, size)


async def read_log_size(transaction: Transaction, task_run_id: str, attempt: int) -> int:
    """Where the log of an attempt ends."""
    row = await transaction.row(_LAST, {"log_of": task_run_id, "log_attempt": attempt})
    return 0 if row is None else int(row.offset + row.size)
