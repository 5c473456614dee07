"""The history as an outbox: each change once, in the order of its number, and none that a smaller number can follow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.store import outbox
from rota.store.database import Database

BATCH = 1_000
SETTLE_SECONDS = 0.005


class Gap(NamedTuple):
    """Numbers up to `last` are missing: they were handed out to transactions before `writer`, or to nobody."""

    last: int
    writer: int


class Outbox:
    """Reads on from a number. Where one is missing it waits until that has appeared, or never can any more.

    A number is missing while its transaction has not ended, and for ever if that was undone. Every transaction that
    has been given a number began to write before (`has_begun`); so once all that had begun when the gap was seen have
    ended, what is not there by then will never be.
    """

    def __init__(self, database: Database, position: int) -> None:
        self.position = position
        self._database = database
        self._gap: Gap | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether something has been seen that must wait for what comes before it."""
        return self._gap is not None

    async def read(self) -> Sequence[Any]:
        """The next changes, if there are any."""
        gap, settled_to = self._gap, 0
        # Asked before the rows are read: what those transactions wrote is then among the rows.
        if gap is not None and await self._database.read(outbox.find_oldest_writer) >= gap.writer:
            settled_to, gap = gap.last, None
        rows = await self._database.read(lambda tx: outbox.read_changes(tx, self.position, BATCH))
        count = _count_settled(rows, self.position, settled_to)
        if count < len(rows) and (gap is None or rows[count].seq > gap.last):
            gap = Gap(rows[-1].seq, await self._database.read(outbox.find_new_writer))
        self._gap = gap if count < len(rows) else None
        if count:
            self.position = rows[count - 1].seq
        return rows[:count]


def _count_settled(rows: Sequence[Any], position: int, settled_to: int) -> int:
    """How many of the rows, from the first on, have nothing before them that may still appear."""
    for count, row in enumerate(rows):
        if row.seq != position + 1 and row.seq - 1 > settled_to:
            return count
        position = row.seq
    return len(rows)


async def find_end(database: Database) -> int:
    """The number of the last change, once everything before it has appeared that will."""
    last = await database.read(outbox.read_last_seq)
    writer = await database.read(outbox.find_new_writer)
    while await database.read(outbox.find_oldest_writer) < writer:  # noqa: ASYNC110 - the others are elsewhere
        await asyncio.sleep(SETTLE_SECONDS)
    return last
