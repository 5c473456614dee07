"""One linear history that leads to exactly the tables of the code, up and down, on both databases."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from rota.domain.errors import Unavailable
from rota.store import migrate, tables_limits, tables_service, tables_time
from rota.store.schema import metadata
from rota.store.tables import workflows
from tests.store.catalog import on_connection, read_catalog

ROOT = Path(__file__).resolve().parents[2]
CONCURRENT = 4


def test_there_is_one_head_and_no_branch():
    script = ScriptDirectory(str(migrate.MIGRATIONS))
    revisions = list(script.walk_revisions())
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1
    assert not [revision.revision for revision in revisions if revision.is_branch_point or revision.is_merge_point]


async def test_upgrading_from_empty_equals_the_metadata(empty_database_url: str):
    migrate.upgrade(empty_database_url)

    def compare(connection: Connection) -> list:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)

    assert await on_connection(empty_database_url, compare) == []


async def test_upgrading_leads_to_the_same_catalog_as_creating(empty_database_url: str):
    """Defaults, conditions of indexes, checks and storage options included, which comparing metadata does not see."""
    migrate.upgrade(empty_database_url)
    upgraded = await on_connection(empty_database_url, read_catalog)
    migrate.downgrade(empty_database_url, "base")
    await on_connection(empty_database_url, metadata.create_all)
    created = await on_connection(empty_database_url, read_catalog)
    assert created.keys() == upgraded.keys()
    for name in created:
        # SQLite keeps the text of a table's definition, in which constraints may come in another order.
        assert sorted(map(_split, upgraded[name]), key=str) == sorted(map(_split, created[name]), key=str), name


def _split(row: tuple) -> tuple:
    return tuple(
        sorted(re.split(r", (?=CONSTRAINT|[a-z\"])", _strip(value))) if isinstance(value, str) else value
        for value in row
    )


def _strip(definition: str) -> str:
    match = re.fullmatch(r"(CREATE TABLE \w+) \((.*)\)", definition)
    return f"{match[1]}, {match[2]}" if match else definition


async def test_up_down_up(empty_database_url: str):
    migrate.upgrade(empty_database_url)
    first = await on_connection(empty_database_url, read_catalog)
    migrate.downgrade(empty_database_url, "base")
    left = await on_connection(empty_database_url, lambda connection: inspect(connection).get_table_names())
    assert set(left) <= {"alembic_version"}
    assert migrate.read_version(empty_database_url).current is None
    migrate.upgrade(empty_database_url)
    assert await on_connection(empty_database_url, read_catalog) == first
    assert migrate.read_version(empty_database_url).is_right


async def test_every_step_can_be_taken_back(empty_database_url: str):
    script = ScriptDirectory(str(migrate.MIGRATIONS))
    for revision in reversed(list(script.walk_revisions())):
        migrate.upgrade(empty_database_url, revision.revision)
        migrate.downgrade(empty_database_url, "-1")
        migrate.upgrade(empty_database_url, revision.revision)
        assert migrate.read_version(empty_database_url).current == revision.revision


def test_upgrading_twice_changes_nothing(database_url: str):
    before = migrate.read_version(database_url)
    migrate.upgrade(database_url)
    assert migrate.read_version(database_url) == before
    migrate.check(database_url)


def test_nodes_that_start_at_once_upgrade_once(empty_database_url: str):
    code = "import sys; from rota.store import migrate; migrate.upgrade(sys.argv[1]); migrate.check(sys.argv[1])"
    command = [sys.executable, "-c", code, empty_database_url]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(CONCURRENT)
    ]
    results = [(child.communicate(timeout=100)[1], child.returncode) for child in children]
    assert [code for _error, code in results] == [0] * CONCURRENT, results
    assert migrate.read_version(empty_database_url).is_right


@pytest.mark.parametrize("prepares", [False, True], ids=["empty", "half-way"])
async def test_an_older_database_is_refused_with_the_command_to_run(empty_database_url: str, prepares: bool):
    if prepares:
        migrate.upgrade(empty_database_url)
        migrate.downgrade(empty_database_url, "base")
    with pytest.raises(Unavailable, match="rota db upgrade") as caught:
        migrate.check(empty_database_url)
    assert caught.value.code == "database_older"
    left = await on_connection(empty_database_url, lambda connection: inspect(connection).get_table_names())
    assert set(left) <= {"alembic_version"}


async def test_a_newer_database_is_refused(database_url: str):
    set_version = text("UPDATE alembic_version SET version_num = '9999'")
    await on_connection(database_url, lambda connection: connection.execute(set_version))
    before = await on_connection(database_url, read_catalog)
    with pytest.raises(Unavailable, match="newer") as caught:
        migrate.check(database_url)
    assert caught.value.code == "database_newer"
    assert not migrate.read_version(database_url).is_known
    with pytest.raises(Unavailable) as caught:
        migrate.upgrade(database_url)
    assert caught.value.code == "database_newer"
    assert await on_connection(database_url, read_catalog) == before


def test_the_metadata_holds_every_table():
    expected = {
        *("workflows", "workflow_versions", "tasks", "task_dependencies", "schedules", "workflow_runs", "lanes"),
        *("task_runs", "attempts", "task_logs", "workers", "pools", "state_history"),
        *("nodes", "leases", "secrets", "api_keys", "audit_log", "idempotency_keys", "backfills"),
    }
    modules = (workflows, tables_service.nodes, tables_limits.pools, tables_time.backfills)
    assert all(table.metadata is metadata for table in modules)
    assert set(metadata.tables) >= expected
