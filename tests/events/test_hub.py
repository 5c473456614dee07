"""The hub: from the database, from memory and live, joined without a gap or a repeat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rota.domain.events import Event, EventFilter, EventType
from rota.events.follower import Follower
from rota.events.hub import Hub, HubOptions
from rota.store.database import Database
from rota.store.history import record_changes
from tests.events.changes import make_change, write
from tests.store.plans import find_scans, record_statements

ALL = EventFilter()


def _line(event: Event) -> bytes:
    return event.document + b"\n"


@asynccontextmanager
async def running(database: Database, options: HubOptions | None = None) -> AsyncIterator[Hub]:
    hub = Hub(database, options)
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _read(follower: Follower, count: int) -> list[str]:
    """The states of the next events."""
    found: list[str] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            found += [json.loads(line)["payload"]["status"] for line in (await follower.read()).splitlines()]
    return found


async def test_everybody_gets_everything_once(database: Database):
    await write(database, *(f"old-{number}" for number in range(10)))
    async with running(database) as hub:
        with hub.follow(ALL, _line) as live, hub.follow(ALL, _line, 4) as late:
            assert await live.start() == 10
            await write(database, "a", "b")
            assert await _read(live, 2) == ["a", "b"]
            assert await _read(late, 8) == [*(f"old-{number}" for number in range(4, 10)), "a", "b"]
            assert live.position == late.position == 12


async def test_far_back_the_database_is_read_page_by_page(database: Database):
    names = [f"n{number}" for number in range(1_700)]
    await write(database, *names)
    async with running(database, HubOptions(kept_bytes=10_000, kept_changes=10)) as hub:
        with hub.follow(ALL, _line, 0) as first, hub.follow(ALL, _line, 0) as second:
            assert await _read(first, 1_700) == names
            assert await _read(second, 1_700) == names
            await write(database, "last")
            assert await _read(first, 1) == await _read(second, 1) == ["last"]


async def test_while_it_catches_up_more_happens(database: Database):
    """Changes are written all the time, by several at once, while somebody comes from far behind."""
    await write(database, *(f"old-{number}" for number in range(2_000)))

    async def go_on(number: int) -> None:
        for turn in range(40):
            await write(database, f"{number}-{turn}-a", f"{number}-{turn}-b")

    async with running(database, HubOptions(kept_bytes=20_000, kept_changes=20, pause_seconds=0)) as hub:
        with hub.follow(ALL, _line, 0) as follower:
            writing = asyncio.gather(*(go_on(number) for number in range(3)))
            found = await _read(follower, 2_000 + 3 * 40 * 2)
            await writing
    assert found[:2_000] == [f"old-{number}" for number in range(2_000)]
    assert sorted(found[2_000:]) == sorted(
        f"{number}-{turn}-{item}" for number in range(3) for turn in range(40) for item in "ab"
    )


async def test_who_is_slower_than_the_events_is_told_from_the_database(database: Database):
    async with running(database, HubOptions(kept_bytes=5_000)) as hub:
        with hub.follow(ALL, _line) as slow, hub.follow(ALL, _line) as quick:
            await asyncio.gather(slow.start(), quick.start())
            await write(database, "a")
            assert await _read(slow, 1) == await _read(quick, 1) == ["a"]
            for number in range(60):
                await write(database, f"n{number}")
                assert await _read(quick, 1) == [f"n{number}"]
            assert hub.ring.base > 1
            assert await _read(slow, 60) == [f"n{number}" for number in range(60)]


async def test_a_follower_from_a_node_that_is_ahead_waits(database: Database):
    async with running(database) as hub:
        with hub.follow(ALL, _line) as other, hub.follow(ALL, _line, 2) as ahead:
            await other.start()
            reading = asyncio.ensure_future(_read(ahead, 1))
            await write(database, "a", "b", "c")
            assert await _read(other, 3) == ["a", "b", "c"]
            assert await reading == ["c"]


async def test_nothing_is_read_when_nobody_follows(database: Database, monkeypatch: pytest.MonkeyPatch):
    async with running(database) as hub:
        with hub.follow(ALL, _line) as follower:
            await follower.start()
            await write(database, "a")
            assert await _read(follower, 1) == ["a"]
        await write(database, "unheard")
        await _wait_until(lambda: not hub._is_ready)
        with record_statements() as statements:
            await write(database, "unheard")
            await asyncio.sleep(0.05)
        assert not [statement for statement in statements if statement.startswith("SELECT state_history")]
        with hub.follow(ALL, _line, 1) as follower:
            assert await _read(follower, 2) == ["unheard", "unheard"]


async def _wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.005)


async def test_a_database_that_is_away_for_a_moment(database: Database, monkeypatch: pytest.MonkeyPatch):
    """What cannot be read now is read later: nobody is disconnected, and nothing is missed."""
    async with running(database) as hub:
        with hub.follow(ALL, _line) as follower:
            await follower.start()
            read, failures = database.read, 3

            async def fail_at_first(work):
                nonlocal failures
                if failures:
                    failures -= 1
                    raise OSError("the server closed the connection")
                return await read(work)

            monkeypatch.setattr(database, "read", fail_at_first)
            await write(database, "a")
            assert await _read(follower, 1) == ["a"]
            assert not failures


async def test_filters_are_applied_to_each(database: Database):
    async with running(database) as hub:
        ours = EventFilter("ours", frozenset({EventType.WORKFLOW}))
        with hub.follow(ours, _line) as follower, hub.follow(ALL, _line) as everything:
            await asyncio.gather(follower.start(), everything.start())
            changes = [
                make_change("a", namespace="theirs"),
                make_change("b", "task_run", "ours"),
                make_change("c", "schedule", "ours"),
                make_change("d", namespace="ours"),
                make_change("e", "worker", ""),
            ]
            await database.transact(lambda tx: record_changes(tx, changes))
            assert await _read(follower, 1) == ["d"]
            # What is no event to anybody is passed over.
            assert await _read(everything, 4) == ["a", "b", "d", "e"]


async def test_reading_never_looks_at_a_whole_table(database: Database, database_url: str):
    with record_statements() as statements:
        await write(database, *(f"n{number}" for number in range(1_100)))
        async with running(database, HubOptions(kept_changes=10)) as hub:
            with hub.follow(ALL, _line, 0) as follower:
                await _read(follower, 1_100)
                await database.transact(lambda tx: record_changes(tx, [make_change("x", "task_run")]))
                await _read(follower, 1)
    assert len(statements) > 6
    assert not await find_scans(database_url, statements)
