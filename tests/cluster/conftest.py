"""Nodes of one cluster on each database, whose time is the test's to move."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota.cluster.member import Member, MemberOptions
from rota.store.database import Database, DatabaseOptions
from tests.scheduler.conftest import Clock


class Cluster:
    """Makes members that share a database and a clock."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock

    def make(self, name: str = "node", *, roles: tuple[str, ...] = ("api", "scheduler")) -> Member:
        return Member(self.database, MemberOptions(name, f"http://{name}:8080", roles))


@pytest.fixture
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    clock = Clock()
    database = Database(DatabaseOptions(database_url, clock=clock))
    await database.open()
    yield Cluster(database, clock)
    await database.close()
