"""The outbox is read in the order of its numbers, and nothing is jumped over, however commits interleave."""

from __future__ import annotations

import asyncio
import random

import pytest
from sqlalchemy import text

from rota.events.outbox import Outbox, find_end
from rota.store.database import Database, Transaction
from rota.store.history import record_changes
from tests.events.changes import Undone, make_change, names_of, write, writing
from tests.store.plans import record_statements


@pytest.fixture
def concurrent(database: Database) -> Database:
    """A database with several writers at once."""
    if database.is_sqlite:
        pytest.skip("SQLite has one writer: numbers are in the order of the commits")
    return database


async def _read_until(reader: Outbox, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += names_of(await reader.read())
            await asyncio.sleep(0)
    return found


async def test_changes_come_once_and_in_order(database: Database):
    await write(database, "before")
    reader = Outbox(database, await find_end(database))
    assert await reader.read() == []
    await write(database, "a", "b")
    await write(database, "c")
    assert names_of(await reader.read()) == ["a", "b", "c"]
    assert await reader.read() == []
    assert not reader.is_waiting
    assert names_of(await Outbox(database, 0).read()) == ["before", "a", "b", "c"]


async def test_what_commits_late_is_not_jumped_over(concurrent: Database):
    reader = Outbox(concurrent, 0)
    await write(concurrent, "first")
    async with writing(concurrent, "slow"):
        await write(concurrent, "fast")
        # What stands before the gap comes at once; what stands behind it does not.
        assert names_of(await reader.read()) == ["first"]
        assert reader.is_waiting
        for _ in range(3):
            assert await reader.read() == []
    assert names_of(await reader.read()) == ["slow", "fast"]
    assert not reader.is_waiting


async def test_what_is_undone_is_not_waited_for(concurrent: Database):
    reader = Outbox(concurrent, 0)
    async with writing(concurrent, "slow", is_undone=True):
        await write(concurrent, "fast")
        assert await reader.read() == []
    assert names_of(await _settle(reader)) == ["fast"]


async def _settle(reader: Outbox) -> list[object]:
    """The rows, once the transactions that were under way have ended for all to see."""
    async with asyncio.timeout(10):
        while not (rows := await reader.read()):  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
    return list(rows)


async def test_a_gap_inside_a_gap(concurrent: Database):
    reader = Outbox(concurrent, 0)
    async with writing(concurrent, "a"):
        async with writing(concurrent, "b"):
            await write(concurrent, "c")
            assert await reader.read() == []
            async with writing(concurrent, "d"):
                await write(concurrent, "e")
                assert await reader.read() == []
        assert await reader.read() == []
    assert names_of(await _settle(reader)) == ["a", "b", "c", "d", "e"]


async def test_who_writes_something_else_holds_nobody_up(concurrent: Database):
    reader = Outbox(concurrent, 0)
    busy, may_end = asyncio.Event(), asyncio.Event()

    async def work(transaction: Transaction) -> None:
        await transaction.rows(text("SELECT pg_current_xact_id()"))
        busy.set()
        await may_end.wait()

    task = asyncio.create_task(concurrent.transact(work))
    await busy.wait()
    await write(concurrent, "a")
    assert names_of(await reader.read()) == ["a"]
    may_end.set()
    await task


async def test_the_end_is_known_once_everything_before_it_is_there(concurrent: Database):
    async with writing(concurrent, "slow"):
        await write(concurrent, "fast")
        finding = asyncio.create_task(find_end(concurrent))
        done, _pending = await asyncio.wait([finding], timeout=0.1)
        assert not done
    end = await finding
    assert end == 2
    await write(concurrent, "next")
    assert names_of(await Outbox(concurrent, end).read()) == ["next"]


async def test_who_is_given_a_number_counts_as_a_writer_before(concurrent: Database):
    """The record may be the first thing that a transaction writes: then, too, it begins before it takes a number."""
    with record_statements() as statements:
        await write(concurrent, "a")
    (insert,) = [statement for statement in statements if "INSERT INTO state_history" in statement]
    explain = "EXPLAIN " + insert.replace("$1", "NULL").replace("$2", "'[]'")
    rows = await concurrent.transact(lambda tx: tx.rows(text(explain.replace(":", "\\:"))))
    assert any("One-Time Filter: (pg_current_xact_id() IS NOT NULL)" in row[0] for row in rows), rows


@pytest.mark.parametrize("seed", range(3))
async def test_many_writers_in_any_order(database: Database, seed: int):
    """Every change that was committed is read once, in the order of the numbers, while they are being written."""
    dice = random.Random(seed)
    writers, rounds = 6, 8
    committed: list[str] = []

    async def work(transaction: Transaction, names: list[str], pause: float, is_undone: bool) -> None:
        for name in names:
            await record_changes(transaction, [make_change(name)])
            await asyncio.sleep(pause)
        if is_undone:
            raise Undone

    async def run_writer(number: int) -> None:
        for turn in range(rounds):
            names = [f"{number}-{turn}-{item}" for item in range(dice.randint(1, 3))]
            pause, is_undone = dice.random() * 0.003, dice.random() < 0.25
            try:
                await database.transact(lambda tx, n=names, p=pause, u=is_undone: work(tx, n, p, u))  # type: ignore[misc]
            except Undone:
                continue
            committed.extend(names)

    reader = Outbox(database, 0)
    writing_all = asyncio.gather(*(run_writer(number) for number in range(writers)))
    seen: list[tuple[int, str]] = []
    async with asyncio.timeout(60):
        while not writing_all.done() or len(seen) < len(committed):
            seen += [(row.seq, row.new_state) for row in await reader.read()]
            await asyncio.sleep(0)
    await writing_all
    assert [seq for seq, _name in seen] == sorted({seq for seq, _name in seen})
    assert sorted(name for _seq, name in seen) == sorted(committed)
