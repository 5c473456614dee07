"""Brings a database to the version that this code needs, and refuses to work on any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, pool
from sqlalchemy.exc import DBAPIError

from rota.domain.errors import Unavailable
from rota.store.connect import open_engine
from rota.store.dialect import is_missing, is_sqlite, lock_migrations, make_sqlite_url
from rota.store.refusals import explain_refusal

MIGRATIONS = Path(__file__).parent / "migrations"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """What the database has, and what this code needs. None: no tables of Rota at all."""

    current: str | None
    needed: str
    is_known: bool

    @property
    def is_right(self) -> bool:
        return self.current == self.needed


def upgrade(url: str, revision: str = "head") -> None:
    """Migrates up. Several processes may call this at once: the first does it, the others wait and find it done."""
    _refuse_newer(read_version(url))
    _on_connection(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> None:
    """Migrates down to `revision` (`base` for none, `-1` for one step)."""
    _refuse_newer(read_version(url))
    _on_connection(url, lambda config: command.downgrade(config, revision))


def read_version(url: str) -> SchemaVersion:
    """The version of the database, without touching it."""
    script = ScriptDirectory(str(MIGRATIONS))
    needed = script.get_current_head() or ""

    def read(config: Config) -> str | None:
        return MigrationContext.configure(config.attributes["connection"]).get_current_revision()

    # Opening a file that is not there would make it.
    current = None if is_missing(url) else _on_connection(url, read, locks=False)
    known = {revision.revision for revision in script.walk_revisions()}
    return SchemaVersion(current, needed, current is None or current in known)


def check(url: str) -> None:
    """Raises `Unavailable`, naming the command to run, unless the database is of the version that this code needs."""
    version = read_version(url)
    if version.is_right:
        return
    _refuse_newer(version)
    raise Unavailable(
        f"the database is at version {version.current or 'none'} and this Rota needs {version.needed}. "
        "Run `rota db upgrade`.",
        code="database_older",
    )


def _refuse_newer(version: SchemaVersion) -> None:
    if not version.is_known:
        raise Unavailable(
            f"the database is at version {version.current}, which this Rota does not know: it was made by a newer one. "
            "Start that newer Rota, or run its `rota db downgrade` first.",
            code="database_newer",
        )


def _on_connection(url: str, work: Callable[[Config], T], *, locks: bool = True) -> T:
    """Runs `work` on a connection of its own; may be called from anywhere, a running event loop included."""

    def run(connection: Connection) -> T:
        if locks:
            lock_migrations(connection)
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        return work(config)

    try:
        if is_sqlite(url):
            return _run_on_sqlite(url, run)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, _run_on_postgres(url, run)).result()
    except DBAPIError as error:
        raise Unavailable(explain_refusal(error, url), code="database_unusable") from error
    except OSError as error:
        raise Unavailable(f"the database cannot be reached: {error}", code="database_unusable") from error


def _run_on_sqlite(url: str, run: Callable[[Connection], T]) -> T:
    engine = create_engine(make_sqlite_url(url), poolclass=pool.NullPool)
    with engine.begin() as connection:
        return run(connection)


async def _run_on_postgres(url: str, run: Callable[[Connection], T]) -> T:
    engine = open_engine(url, {}, poolclass=pool.NullPool)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(run)
    finally:
        await engine.dispose()
