"""Databases for tests: every test that asks for `database_url` runs on SQLite and on PostgreSQL.

Under pytest-xdist the controlling process owns the one PostgreSQL server, so that it outlives every worker
and is gone when the run is, however the run ends.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rota.store import migrate
from tests.servers.postgres import Address, PostgresMissing, PostgresServer

DATABASES = ("sqlite", "postgres")

# Two busy cores make any single example slow now and then: that is not a failure of the code.
settings.register_profile("rota", deadline=None, print_blob=True)
settings.load_profile("rota")

_shared_server: pytest.StashKey[PostgresServer | None] = pytest.StashKey()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker, before it starts, where the one server is."""
    stash = node.config.stash
    if _shared_server not in stash:
        stash[_shared_server] = _start_server()
    server = stash[_shared_server]
    node.workerinput["postgres"] = dataclasses.asdict(server.address) if server else None


def pytest_unconfigure(config: pytest.Config) -> None:
    server = config.stash.get(_shared_server, None)
    if server is not None:
        server.stop()


def _start_server() -> PostgresServer | None:
    server = PostgresServer(fast=True)
    try:
        server.start()
    except PostgresMissing:
        return None
    return server


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Address:
    """The run's PostgreSQL server. Where there is none: skipped on a developer's machine, a failure in CI."""
    workerinput = getattr(request.config, "workerinput", None)
    if workerinput is not None:
        found = workerinput["postgres"]
        address = Address(**found) if found else None
    else:
        server = request.config.stash[_shared_server] = _start_server()
        address = server.address if server else None
    if address is None:
        reason = "PostgreSQL cannot be started here: `make test` installs it"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return address


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a migrated, empty SQLite database, to be copied."""
    directory = tmp_path_factory.mktemp("template")
    migrate.upgrade(_sqlite_url(directory))
    return directory


@pytest.fixture(scope="session")
def postgres_template(postgres: Address) -> Iterator[str]:
    """The name of a migrated, empty PostgreSQL database, to be cloned."""
    name = f"template_{uuid.uuid4().hex}"
    migrate.upgrade(postgres.create_database(name))
    yield name
    postgres.drop_database(name)


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated, empty database of the test's own."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        directory = tmp_path / "database"
        shutil.copytree(template, directory)
        yield _sqlite_url(directory)
    else:
        yield from _postgres_database(request, template=request.getfixturevalue("postgres_template"))


@pytest.fixture(params=DATABASES)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of the test's own in which nothing has been created yet."""
    if request.param == "sqlite":
        yield _sqlite_url(tmp_path)
    else:
        yield from _postgres_database(request, template=None)


def _postgres_database(request: pytest.FixtureRequest, template: str | None) -> Iterator[str]:
    server: Address = request.getfixturevalue("postgres")
    name = f"test_{uuid.uuid4().hex}"
    yield server.create_database(name, template)
    server.drop_database(name)


def _sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'rota.db'}"
