"""Writing changes, at the pace that a test wants."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rota.store.database import Database, Transaction
from rota.store.history import Change, record_changes


class Undone(Exception):
    """The transaction is rolled back on purpose."""


def make_change(name: str, kind: str = "workflow_run", namespace: str = "default") -> Change:
    entity_id = str(uuid.uuid4())
    return Change(kind, entity_id, entity_id, namespace, None, name)


async def write(database: Database, *names: str) -> None:
    """One transaction with a change for each name, which becomes its new state."""
    await database.transact(lambda tx: record_changes(tx, [make_change(name) for name in names]))


@asynccontextmanager
async def writing(database: Database, *names: str, is_undone: bool = False) -> AsyncIterator[None]:
    """The changes have their numbers, and are committed at the end, or undone."""
    written, may_end = asyncio.Event(), asyncio.Event()

    async def work(transaction: Transaction) -> None:
        await record_changes(transaction, [make_change(name) for name in names])
        written.set()
        await may_end.wait()
        if is_undone:
            raise Undone

    task = asyncio.create_task(database.transact(work))
    await written.wait()
    yield
    may_end.set()
    await asyncio.gather(task, return_exceptions=True)
    assert task.exception() is None or is_undone


def names_of(rows: Sequence[object]) -> list[str]:
    return [row.new_state for row in rows]  # type: ignore[attr-defined]
