"""What a database says that it holds, in a form that can be compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, create_engine, make_url, pool, text
from sqlalchemy.ext.asyncio import create_async_engine

T = TypeVar("T")

POSTGRES = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default, is_identity
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2
    """,
    "tables": """
        SELECT relname, reloptions FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1
    """,
}
SQLITE = {"all": "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"}


async def on_connection(url: str, work: Callable[[Connection], T]) -> T:
    """Runs `work` in a transaction of its own."""
    if make_url(url).get_backend_name() == "sqlite":
        with create_engine(make_url(url).set(drivername="sqlite"), poolclass=pool.NullPool).begin() as connection:
            return work(connection)
    engine = create_async_engine(url, poolclass=pool.NullPool)
    try:
        async with engine.begin() as opened:
            return await opened.run_sync(work)
    finally:
        await engine.dispose()


def read_catalog(connection: Connection) -> dict[str, list[Any]]:
    """Everything but the migrations' own table."""
    queries = SQLITE if connection.dialect.name == "sqlite" else POSTGRES
    return {
        name: [
            tuple(_normalise(value) for value in row)
            for row in connection.execute(text(query))
            if "alembic_version" not in str(row[0]) + str(row[1])
        ]
        for name, query in queries.items()
    }


def _normalise(value: Any) -> Any:
    return re.sub(r"\s+", " ", value).replace("( ", "(").replace(" )", ")") if isinstance(value, str) else value
