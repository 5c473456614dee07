"""Finding the database server that leads, and leaving one that does not any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import structlog
from sqlalchemy import text

from rota.domain.errors import Unavailable
from rota.settings.addresses import normalize_database_url
from rota.store import migrate
from rota.store.database import Database, DatabaseOptions, Transaction
from tests.servers.postgres import SUPERUSER, Address, free_port

PORT = text("SELECT inet_server_port()")
CREATE = text("CREATE TABLE written (id integer)")
IS_READ_ONLY = "default_transaction_read_only"


@pytest.fixture
def name(postgres: Address, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"connect_{abs(hash(request.node.nodeid))}"
    postgres.create_database(name)
    yield name
    postgres.drop_database(name)


def _url(postgres: Address, name: str, *ports: int) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return normalize_database_url(f"postgresql://{SUPERUSER}:{postgres.password}@{hosts}/{name}")


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Database]:
    database = Database(DatabaseOptions(url, max_open_connections=2))
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def _read_port(database: Database) -> int:
    (row,) = await database.read(lambda transaction: transaction.rows(PORT))
    return int(row[0])


async def _write(transaction: Transaction) -> None:
    await transaction.run(CREATE)


async def test_a_server_that_is_down_is_passed_over(postgres: Address, name: str):
    async with _open(_url(postgres, name, free_port(), postgres.port, free_port())) as database:
        assert await asyncio.gather(*(_read_port(database) for _ in range(3))) == [postgres.port] * 3


def test_migrations_find_the_leader_too(postgres: Address, name: str):
    url = _url(postgres, name, free_port(), postgres.port)
    migrate.upgrade(url)
    assert migrate.read_version(url).is_right


async def test_no_leader_is_a_passing_trouble(postgres: Address, name: str):
    url = _url(postgres, name, postgres.port, free_port())
    postgres.execute(f"ALTER DATABASE {name} SET {IS_READ_ONLY} = on")
    impatient = Database(DatabaseOptions(url, retry_seconds=0.1))
    with structlog.testing.capture_logs(), pytest.raises(Unavailable, match="none of the database servers can be used"):
        await impatient.transact(_write)
    await impatient.close()
    patient = Database(DatabaseOptions(url, retry_seconds=60))
    with structlog.testing.capture_logs():
        writing = asyncio.create_task(patient.transact(_write))
        await asyncio.to_thread(postgres.execute, f"ALTER DATABASE {name} RESET {IS_READ_ONLY}")
        async with asyncio.timeout(30):
            await writing
    await patient.close()


async def test_what_is_wrong_for_good_is_told(postgres: Address, name: str):
    url = _url(postgres, name, postgres.port, free_port()).replace(postgres.password, "wrong")
    with pytest.raises(Unavailable, match="password authentication failed"):
        await asyncio.to_thread(migrate.read_version, url)


async def test_a_connection_to_a_demoted_server_is_left(postgres: Address, name: str):
    """The server that led has become a standby while its connection was idle: the next transaction goes elsewhere."""
    async with _open(_url(postgres, name, postgres.port)) as database:
        demote = text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        await database.transact(lambda transaction: transaction.run(demote))
        with structlog.testing.capture_logs() as lines:
            await database.transact(_write)
        assert "read-only" in next(line["reason"] for line in lines if line["event"] == "database_retry")
