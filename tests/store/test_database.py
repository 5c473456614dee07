"""Transactions: many writers, the one retry policy, wake-ups in the process and between processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from sqlalchemy import Connection, func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from rota.domain.errors import Unavailable
from rota.store.database import Database, DatabaseOptions, Transaction
from rota.store.dialect import NOW, batch
from rota.store.encoding import clean_text, encode_rows
from rota.store.refusals import is_transient
from rota.store.tables import state_history
from rota.store.tables_limits import pools
from rota.store.wakeups import Topic, Wakeups
from tests.store.catalog import on_connection

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 4
TASKS_PER_PROCESS = 4
WRITES = 25


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(DatabaseOptions(database_url, retry_seconds=5))
    await opened.open()
    yield opened
    await opened.close()


async def _add_pool(transaction: Transaction, name: str) -> None:
    await transaction.run(insert(pools).values(namespace="n", name=name, slots=1, created_at=NOW, updated_at=NOW))


async def _names(database: Database) -> set[str]:
    return {row.name for row in await database.read(lambda tx: tx.rows(select(pools.c.name)))}


# --- many writers ---------------------------------------------------------------------------------------------

CODE = f"""
import asyncio, sys
import structlog
from sqlalchemy import text
from rota.store.database import Database, DatabaseOptions
INSERT = text("INSERT INTO pools (namespace, name, slots, created_at, updated_at) "
              "VALUES (:namespace, :name, 1, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)")
async def write(database, who):
    for number in range({WRITES}):
        await database.transact(lambda tx: tx.run(INSERT, {{"namespace": who, "name": str(number)}}))
async def main(url, process):
    databases = [Database(DatabaseOptions(url)) for _ in range({TASKS_PER_PROCESS})]
    with structlog.testing.capture_logs() as logs:
        await asyncio.gather(*(write(database, f"{{process}}.{{n}}") for n, database in enumerate(databases)))
    for database in databases:
        await database.close()
    print(len([entry for entry in logs if entry["event"] == "database_retry"]))
asyncio.run(main(*sys.argv[1:]))
"""


def test_sixteen_writers_in_four_processes_never_see_a_locked_database(database_url: str):
    commands = [[sys.executable, "-c", CODE, database_url, str(number)] for number in range(PROCESSES)]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    answers = [child.communicate(timeout=100) for child in children]
    assert [answer[0].strip() for answer in answers] == ["0"] * PROCESSES, answers
    count = asyncio.run(on_connection(database_url, _count_pools))
    assert count == PROCESSES * TASKS_PER_PROCESS * WRITES


def _count_pools(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(pools)).scalar_one()


async def test_readers_do_not_wait_for_a_writer(database: Database):
    inside, may_end = asyncio.Event(), asyncio.Event()

    async def write(transaction: Transaction) -> None:
        await _add_pool(transaction, "slow")
        inside.set()
        await may_end.wait()

    writing = asyncio.create_task(database.transact(write))
    await inside.wait()
    async with asyncio.timeout(5):
        assert await _names(database) == set()
    may_end.set()
    await writing
    assert await _names(database) == {"slow"}


async def test_a_cancelled_transaction_leaves_nothing_and_blocks_nobody(database: Database):
    inside = asyncio.Event()

    async def write(transaction: Transaction) -> None:
        await _add_pool(transaction, "gone")
        inside.set()
        await asyncio.Event().wait()

    for _ in range(3):
        inside.clear()
        writing = asyncio.create_task(database.transact(write))
        await inside.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    async with asyncio.timeout(5):
        await database.transact(lambda tx: _add_pool(tx, "next"))
    assert await _names(database) == {"next"}


async def test_an_error_undoes_the_transaction_and_calls_nobody(database: Database):
    seen = database.wakeups.count(Topic.QUEUE)

    async def write(transaction: Transaction) -> None:
        await _add_pool(transaction, "gone")
        transaction.wake(Topic.QUEUE)
        raise KeyError("on purpose")

    with pytest.raises(KeyError):
        await database.transact(write)
    assert await _names(database) == set()
    assert database.wakeups.count(Topic.QUEUE) == seen


async def test_what_is_to_be_done_after_the_commit_is_done_after_it(database: Database):
    done: list[str] = []

    async def write(transaction: Transaction) -> None:
        transaction.after_commit(lambda: done.append("done"))
        await _add_pool(transaction, "a")
        assert done == []

    await database.transact(write)
    assert done == ["done"]
    with pytest.raises(IntegrityError):
        await database.transact(write)
    assert done == ["done"]


# --- the retry policy -------------------------------------------------------------------------------------------


class _ServerError(Exception):
    def __init__(self, sqlstate: str, message: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def _failure(sqlstate: str = "", message: str = "") -> OperationalError:
    return OperationalError("SELECT 1", None, _ServerError(sqlstate, message))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_failure("40001"), True),
        (_failure("40P01"), True),
        (_failure("57P01"), True),
        (_failure("08006"), True),
        (_failure("25006"), True),
        (_failure(message="database is locked"), True),
        (ConnectionRefusedError(), True),
        (_failure("23505"), False),
        (_failure("42P01"), False),
        (_failure("22P05"), False),
        (KeyError(), False),
    ],
)
def test_what_may_be_tried_again(error: Exception, expected: bool):
    assert is_transient(error) is expected


async def test_a_transient_error_is_tried_again_and_effects_count_once(database: Database):
    attempts = 0

    async def write(transaction: Transaction) -> str:
        nonlocal attempts
        attempts += 1
        await _add_pool(transaction, f"try {attempts}")
        transaction.wake(Topic.QUEUE)
        if attempts < 3:
            raise _failure("40001")
        return "done"

    seen = database.wakeups.count(Topic.QUEUE)
    with structlog.testing.capture_logs() as logs:
        assert await database.transact(write) == "done"
    assert [entry["event"] for entry in logs] == ["database_retry"] * 2
    assert await _names(database) == {"try 3"}
    assert database.wakeups.count(Topic.QUEUE) == seen + 1


async def test_other_errors_are_not_tried_again(database: Database):
    attempts = 0

    async def write(transaction: Transaction) -> None:
        nonlocal attempts
        attempts += 1
        raise _failure("42P01")

    with pytest.raises(OperationalError):
        await database.transact(write)
    assert attempts == 1


async def test_giving_up_is_a_typed_error(database_url: str):
    database = Database(DatabaseOptions(database_url, retry_seconds=0.05))

    async def write(_transaction: Transaction) -> None:
        raise _failure("40001")

    with pytest.raises(Unavailable):
        await database.transact(write)
    await database.close()


# --- wake-ups ---------------------------------------------------------------------------------------------------


async def test_no_call_is_missed_between_looking_and_waiting():
    wakeups = Wakeups()
    seen = wakeups.count(Topic.QUEUE)
    wakeups.call([Topic.QUEUE])
    assert await wakeups.wait(Topic.QUEUE, seen, 0)
    assert not await wakeups.wait(Topic.QUEUE, wakeups.count(Topic.QUEUE), 0.01)
    assert not await wakeups.wait(Topic.ORDERS, wakeups.count(Topic.ORDERS), 0)


async def test_a_commit_wakes_up_all_who_wait_for_its_topic(database: Database):
    seen = database.wakeups.count(Topic.QUEUE)
    waiting = [asyncio.create_task(database.wakeups.wait(Topic.QUEUE, seen, 60)) for _ in range(5)]
    other = asyncio.create_task(database.wakeups.wait(Topic.LOGS, database.wakeups.count(Topic.LOGS), 0.05))

    async def write(transaction: Transaction) -> None:
        transaction.wake(Topic.QUEUE)
        await asyncio.wait(waiting, timeout=0.01)
        assert not any(task.done() for task in waiting)

    await database.transact(write)
    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [True] * 5
    assert await other is False


@pytest.fixture
async def pair(
    postgres, postgres_template: str, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Database, Database]]:
    """Two processes' worth of databases on one server."""
    name = f"listen_{abs(hash(request.node.nodeid))}"
    url = postgres.create_database(name, postgres_template)
    both = [Database(DatabaseOptions(url, max_open_connections=3)) for _ in range(2)]
    for database in both:
        await database.open()
    yield both[0], both[1]
    for database in both:
        await database.close()
    postgres.drop_database(name)


async def _wake(database: Database, topic: Topic) -> None:
    async def write(transaction: Transaction) -> None:
        transaction.wake(topic)

    await database.transact(write)


async def test_a_commit_wakes_up_the_other_process(pair: tuple[Database, Database]):
    here, there = pair
    for topic in (*Topic, *Topic):
        seen = there.wakeups.count(topic)
        other = {name: there.wakeups.count(name) for name in Topic if name != topic}
        await _wake(here, topic)
        assert await there.wakeups.wait(topic, seen, 10)
        assert {name: there.wakeups.count(name) for name in other} == other


async def test_many_calls_at_once_all_arrive_and_none_comes_back(pair: tuple[Database, Database]):
    here, there = pair
    own = here.wakeups.count(Topic.QUEUE)
    seen = {topic: there.wakeups.count(topic) for topic in Topic}
    await asyncio.gather(*(_wake(here, topic) for topic in Topic for _ in range(20)))
    for topic in Topic:
        assert await there.wakeups.wait(topic, seen[topic], 10)
    assert here.wakeups.count(Topic.QUEUE) == own + 20


async def test_a_listener_whose_connection_is_cut_comes_back(pair: tuple[Database, Database]):
    here, there = pair
    cut = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    for _ in range(2):
        seen = there.wakeups.count(Topic.ORDERS)
        with structlog.testing.capture_logs():
            await here.read(lambda tx: tx.rows(cut))
            # Whatever was called meanwhile went unheard: everyone is woken up to look for themselves.
            assert await there.wakeups.wait(Topic.ORDERS, seen, 10)
            # Its own connection may have been cut as well; the next transaction gets another.
            seen = there.wakeups.count(Topic.QUEUE)
            await _wake(here, Topic.QUEUE)
            assert await there.wakeups.wait(Topic.QUEUE, seen, 10)


# --- values -----------------------------------------------------------------------------------------------------

_texts = batch("texts", name=pools.c.name.type, rest=pools.c.description.type)


@pytest.mark.parametrize(
    "value",
    ["", "\0", "a\0\0b", "\\u0000", "\\\\\0", "\ud800", "\udfff\0", "\U0010ffff", '"\\', "x" * 5_000_000, "\u2028\x1f"],
    ids=lambda value: repr(value[:12]),
)
async def test_text_goes_through_a_batch_unharmed(database: Database, value: str):
    parameters = {"texts": encode_rows([("a", value), ("b", None)])}
    rows = await database.transact(lambda tx: tx.rows(select(_texts.c.name, _texts.c.rest), parameters))
    assert [tuple(row) for row in rows] == [("a", clean_text(value)), ("b", None)]


async def test_a_refused_row_takes_the_whole_statement_with_it(database: Database):
    async def write(transaction: Transaction) -> None:
        await _add_pool(transaction, "fine")
        await _add_pool(transaction, "fine")

    with pytest.raises(IntegrityError):
        await database.transact(write)
    assert await _names(database) == set()
    assert await database.read(lambda tx: tx.rows(select(state_history))) == []
