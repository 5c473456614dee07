"""The plans that the databases make of the statements that were executed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import asyncpg
from sqlalchemy import Engine, event, make_url

from rota.store.dialect import WRITER_SETTINGS

# What grows with use. Everything else is as large as its owner makes it.
LARGE = {
    *("task_runs", "workflow_runs", "attempts", "task_logs", "state_history"),
    *("tasks", "task_dependencies", "schedules", "task_maps"),
}
# They hold only what is to be done, so they may be read from their beginning.
PARTIAL = {
    *("ix_task_runs_claim", "ix_task_runs_due", "ix_task_runs_lease", "ix_task_runs_slots", "ix_task_runs_held"),
    *("ix_task_runs_expiry", "ix_task_runs_key_new", "ix_task_runs_key_left"),
    *("ix_task_runs_items", "ix_task_maps_unfinished"),
    # Bounded by what people are asked at the moment.
    *("ix_task_runs_approvals", "ix_task_runs_polls"),
    *("ix_task_runs_calls", "ix_workflow_runs_untold"),
    # Bounded by what has failed and not been retried yet, and read only when somebody retries.
    "ix_task_runs_dead",
    *("ix_workflow_runs_deadline", "ix_workflow_runs_waiting", "ix_workflow_runs_active", "ix_schedules_due"),
    "ix_workflow_runs_unreviewed",
}
_STATEMENT = re.compile(r"\s*(WITH|SELECT|UPDATE|INSERT|DELETE)\b")


@contextmanager
def record_statements() -> Iterator[dict[str, Any]]:
    """Every different statement that is executed meanwhile, with the parameters of its last time."""
    seen: dict[str, Any] = {}

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if _STATEMENT.match(statement):
            seen[statement] = parameters

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", record)


async def find_scans(url: str, statements: Mapping[str, Any]) -> list[str]:
    """Statements that read a large table as a whole, with the line of the plan that does."""
    if url.startswith("sqlite"):
        return _find_sqlite_scans(url, statements)
    return await _find_postgres_scans(url, statements)


def _find_sqlite_scans(url: str, statements: Mapping[str, Any]) -> list[str]:
    found = []
    connection = sqlite3.connect(make_url(url).database or "")
    for statement, parameters in statements.items():
        aliases = _find_aliases(statement)
        for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters):
            match = re.match(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?", row[3])
            if match and aliases.get(match[1]) in LARGE and match[2] not in PARTIAL:
                found.append(f"{row[3]}: {statement}")
    connection.close()
    return found


def _find_aliases(statement: str) -> dict[str, str]:
    """Names in the statement, and the tables that they stand for."""
    aliases = {name: name for name in LARGE}
    for table, alias in re.findall(r"(\w+) AS (\w+)", statement):
        if table in LARGE:
            aliases[alias] = table
    return aliases


async def _find_postgres_scans(url: str, statements: Mapping[str, Any]) -> list[str]:
    dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(dsn, server_settings=dict(WRITER_SETTINGS))
    found = []
    try:
        # Plans are kept and used for whatever comes: those are the ones to look at.
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for statement in statements:
            plan = await _explain(connection, statement)
            found += [f"{fault}: {statement}" for fault in _walk(plan)]
    finally:
        await connection.close()
    return found


async def _explain(connection: Any, statement: str) -> dict[str, Any]:
    count = max(map(int, re.findall(r"\$(\d+)", statement)), default=0)
    await connection.execute(f"PREPARE looked_at AS {statement}")
    arguments = f"({', '.join(['NULL'] * count)})" if count else ""
    ((answer,),) = await connection.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE looked_at{arguments}")
    await connection.execute("DEALLOCATE looked_at")
    plan: dict[str, Any] = json.loads(answer)[0]["Plan"]
    return plan


def _walk(node: dict[str, Any]) -> Iterator[str]:
    table = node.get("Relation Name")
    if table in LARGE and node["Node Type"] != "ModifyTable":
        index = node.get("Index Name")
        if node["Node Type"] == "Seq Scan":
            yield f"Seq Scan on {table}"
        elif index is not None and "Index Cond" not in node and index not in PARTIAL:
            yield f"all of {index} on {table}"
    for child in node.get("Plans", ()):
        yield from _walk(child)
