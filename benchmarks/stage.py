"""An engine on a fresh database with durable settings, for as long as a measurement takes."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota.domain.spec_parse import parse_workflow
from rota.domain.work import Assignment, Finished, Registration, WorkerIdentity
from rota.engine.engine import Engine
from rota.store import migrate
from rota.store.database import Database, DatabaseOptions
from tests.servers.postgres import PostgresServer


@dataclass(frozen=True, slots=True)
class Place:
    """Where databases are made: a folder for SQLite, a private server for PostgreSQL."""

    kind: str
    folder: Path
    server: PostgresServer | None = None

    def make_url(self) -> str:
        name = f"bench_{uuid.uuid4().hex[:12]}"
        url = f"sqlite:///{self.folder}/{name}.db" if self.server is None else self.server.create_database(name)
        migrate.upgrade(url)
        return url


@contextmanager
def open_place(kind: str) -> Iterator[Place]:
    """A place for databases of this kind (`sqlite` or `postgres`), gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        if kind == "sqlite":
            yield Place(kind, Path(folder))
            return
        server = PostgresServer(fast=False, settings={"shared_buffers": "512MB", "max_wal_size": "4GB"})
        server.start()
        try:
            yield Place(kind, Path(folder), server)
        finally:
            server.stop()


@dataclass(frozen=True, slots=True)
class Stage:
    engine: Engine
    database: Database
    worker: WorkerIdentity
    url: str

    async def define(self, name: str, tasks: Sequence[dict[str, Any]]) -> str:
        """Saves a workflow without limits; its id."""
        document = {"name": name, "max_active_runs": 0, "tasks": list(tasks)}
        return (await self.engine.create_workflow(parse_workflow(document, now=datetime.now(UTC)))).id


@asynccontextmanager
async def open_stage(place: Place) -> AsyncIterator[Stage]:
    """An engine with one registered worker on a fresh database."""
    url = place.make_url()
    database = Database(DatabaseOptions(url))
    await database.open()
    try:
        engine = Engine(database)
        registered = await engine.register(Registration(name="bench", concurrency=10_000, kinds=("shell", "python")))
        yield Stage(engine, database, registered.identity, url)
        await engine.close()
    finally:
        await database.close()


def succeed(assignments: Sequence[Assignment]) -> list[Finished]:
    """Reports of success for all of these."""
    return [Finished(item.task_run_id, item.attempt, "success", exit_code=0) for item in assignments]


async def pump(stage: Stage, limit: int) -> int:
    """Claims and completes until nothing is left; how many it was."""
    count = 0
    assignments = await stage.engine.claim(stage.worker, limit=limit)
    while assignments:
        reply = await stage.engine.report(stage.worker, succeed(assignments), claim=limit)
        count += len(assignments)
        assignments = reply.assignments
    return count
