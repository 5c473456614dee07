"""An engine on each database, whose time is the test's to move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.domain.spec_parse import parse_workflow
from rota.engine.engine import Engine
from rota.observability.metrics import Metrics
from rota.store.database import Database, DatabaseOptions

START = datetime(2026, 5, 4, 12, 0, 30, tzinfo=UTC)


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: datetime = field(default=START)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **delta: float) -> None:
        self.now += timedelta(**delta)


@dataclass
class Bench:
    """What a duty works on."""

    engine: Engine
    clock: Clock
    metrics: Metrics

    async def apply(self, **fields: Any) -> str:
        """A workflow of one task; its id."""
        document = {"name": "flow", "tasks": [{"name": "a", "command": "true"}], **fields}
        return (await self.engine.apply_workflow(parse_workflow(document, now=self.clock.now))).id


@pytest.fixture
async def bench(database_url: str) -> AsyncIterator[Bench]:
    clock = Clock()
    database = Database(DatabaseOptions(database_url, clock=clock))
    await database.open()
    yield Bench(Engine(database), clock, Metrics())
    await database.close()
