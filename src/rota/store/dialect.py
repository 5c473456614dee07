"""Where the two databases differ: column types, and the few functions that each spells in its own way.

Everything above this module is written once. Instants are `timestamptz` on PostgreSQL and integer microseconds on
SQLite; ids are `uuid` and text; JSON is text on both, because it is only ever read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Insert,
    Integer,
    String,
    Table,
    Text,
    Uuid,
    cast,
    event,
    literal,
    literal_column,
    make_url,
    text,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.engine import Connection, Dialect, Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import bindparam, func, select
from sqlalchemy.sql.functions import FunctionElement, GenericFunction
from sqlalchemy.sql.selectable import CTE
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine

from rota.domain.ids import is_uuid
from rota.store.encoding import EPOCH, encode_json, to_microseconds

POSTGRES = "postgresql"
# An identifier that nothing has.
NOTHING = "00000000-0000-0000-0000-000000000000"


class Instant(TypeDecorator[datetime]):
    """A moment in UTC, exact to the microsecond."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == POSTGRES:
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(BigInteger())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name == POSTGRES:
            return value
        return to_microseconds(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None or isinstance(value, datetime):
            return value
        return EPOCH + timedelta(microseconds=value)


class Id(TypeDecorator[str]):
    """An identifier in its canonical text form."""

    impl = String(36)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == POSTGRES:
            return dialect.type_descriptor(Uuid(as_uuid=False, native_uuid=True))
        return dialect.type_descriptor(String(36))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Text that is no identifier names nothing, on either database."""
        if value is None:
            return None
        return value if is_uuid(value) and value == value.lower() else NOTHING


class Json(TypeDecorator[Any]):
    """JSON kept as text: read whole, never searched by the database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else encode_json(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else msgspec.json.decode(value)


# Small automatic keys: 64 bits on PostgreSQL, and SQLite's row id.
Serial = BigInteger().with_variant(Integer(), "sqlite")


class add_seconds(FunctionElement[datetime]):
    """`moment` plus a number of seconds."""

    type = Instant()
    inherit_cache = True


@compiles(add_seconds)
def _add_seconds(element: add_seconds, compiler: SQLCompiler, **options: Any) -> str:
    moment, seconds = element.clauses
    return (
        f"({compiler.process(moment, **options)} + CAST({compiler.process(seconds, **options)} * 1000000 AS INTEGER))"
    )


@compiles(add_seconds, POSTGRES)
def _add_seconds_postgres(element: add_seconds, compiler: SQLCompiler, **options: Any) -> str:
    moment, seconds = element.clauses
    return f"({compiler.process(moment, **options)} + make_interval(secs => {compiler.process(seconds, **options)}))"


class milliseconds_of(FunctionElement[int]):
    """An instant as Unix milliseconds."""

    type = BigInteger()
    inherit_cache = True


@compiles(milliseconds_of)
def _milliseconds_of(element: milliseconds_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(next(iter(element.clauses)), **options)} / 1000)"


@compiles(milliseconds_of, POSTGRES)
def _milliseconds_of_postgres(element: milliseconds_of, compiler: SQLCompiler, **options: Any) -> str:
    moment = compiler.process(next(iter(element.clauses)), **options)
    return f"CAST(extract(epoch from {moment}) * 1000 AS BIGINT)"


class clock(FunctionElement[datetime]):
    """The database's own time."""

    type = Instant()
    inherit_cache = True


@compiles(clock)
def _clock(element: clock, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


@compiles(clock, POSTGRES)
def _clock_postgres(element: clock, compiler: SQLCompiler, **options: Any) -> str:
    return "statement_timestamp()"


# The time that statements go by. A transaction binds `now` on SQLite (one host, one clock) and in tests;
# otherwise the database decides.
NOW: ColumnElement[datetime] = func.coalesce(bindparam("now", None, type_=Instant()), clock(), type_=Instant())


class json_rows(GenericFunction[Any]):
    """The elements of a JSON array, one row each, in a column `value`."""

    inherit_cache = True
    name = "json_rows"


@compiles(json_rows)
def _json_rows(element: json_rows, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(json_rows, POSTGRES)
def _json_rows_postgres(element: json_rows, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_array_elements(CAST({compiler.process(element.clauses, **options)} AS JSONB))"


class json_item(FunctionElement[Any]):
    """Item `position` (a literal) of a JSON array."""

    type = Text()
    inherit_cache = True


@compiles(json_item)
def _json_item(element: json_item, compiler: SQLCompiler, **options: Any) -> str:
    value, position = (compiler.process(clause, **options) for clause in element.clauses)
    return f"json_extract({value}, '$[{position}]')"


@compiles(json_item, POSTGRES)
def _json_item_postgres(element: json_item, compiler: SQLCompiler, **options: Any) -> str:
    value, position = (compiler.process(clause, **options) for clause in element.clauses)
    return f"({value} ->> {position})"


class instant_of(FunctionElement[datetime]):
    """The instant that is so many microseconds after the Unix epoch."""

    type = Instant()
    inherit_cache = True


@compiles(instant_of)
def _instant_of(element: instant_of, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(next(iter(element.clauses)), **options)


@compiles(instant_of, POSTGRES)
def _instant_of_postgres(element: instant_of, compiler: SQLCompiler, **options: Any) -> str:
    microseconds = compiler.process(next(iter(element.clauses)), **options)
    return f"(timestamptz 'epoch' + {microseconds} * interval '1 microsecond')"


def only(condition: str) -> dict[str, Any]:
    """Makes an index partial."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


# Rows of these tables are updated several times in a short life: leave room for the new versions in the page.
HOT: dict[str, Any] = {"postgresql_with": {"fillfactor": "70"}}


class among(FunctionElement[bool]):  # its arguments: a column, and a SELECT of the values that it may have
    """Restricts a table that is joined to a batch to the rows that can match, whatever the planner thinks of its size.

    PostgreSQL then reads it by index and by nothing else. SQLite takes tables to be large and does so anyway.
    """

    type = Boolean()
    inherit_cache = True


@compiles(among)
def _among(element: among, compiler: SQLCompiler, **options: Any) -> str:
    return "1 = 1"


@compiles(among, POSTGRES)
def _among_postgres(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY (ARRAY{values})"


class within(FunctionElement[Any]):  # its arguments: a column, and a SELECT of the values that it may have
    """`column IN (SELECT …)`, answered by index, also where PostgreSQL takes the table to be small."""

    # Not Boolean: for SQLite, which has none, that would be written `… = 1`, and then the index is not used.
    type = NullType()
    inherit_cache = True


@compiles(within)
def _within(element: within, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN {values}"


@compiles(within, POSTGRES)
def _within_postgres(element: within, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY (ARRAY{values})"


def flag(column: Column[bool]) -> ColumnElement[Any]:
    """A flag as the conditions of partial indexes have it. (SQLAlchemy writes `… = 1` for SQLite, which then does not
    recognise the condition.)"""
    return literal_column(f"{column.table.name}.{column.name}")


def constant(word: str) -> ColumnElement[str]:
    """A word as part of the statement's text instead of one more parameter to bind each time."""
    return literal_column(f"'{word}'", String())


def batch(parameter: str, **columns: TypeEngine[Any]) -> CTE:
    """A parameter that carries many rows: a JSON array of arrays, one per row, in the order of `columns`.

    The statement's text does not depend on the number of rows, so it is compiled and planned once.
    """
    rows = func.json_rows(bindparam(parameter, type_=Text())).table_valued("value", name=f"{parameter}_items")
    picked = [
        _typed(json_item(rows.c.value, literal_column(str(position))), kind).label(name)
        for position, (name, kind) in enumerate(columns.items())
    ]
    return select(*picked).cte(parameter)


def _typed(item: ColumnElement[Any], kind: TypeEngine[Any]) -> ColumnElement[Any]:
    if isinstance(kind, Instant):
        return instant_of(cast(item, BigInteger()))
    return type_coerce(cast(item, kind), kind)


READER_SETTINGS = {"application_name": "rota", "jit": "off", "timezone": "UTC"}
# Every statement of a transition finds its rows by index, from the rows that it was given (see `among`). Plans are kept
# for long, and one made while a table was small must not scan it when it has grown.
WRITER_SETTINGS = {
    **READER_SETTINGS,
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
}


# Copies of a PostgreSQL server, as the server that leads sees them. Without the right to know more, only their names.
REPLICAS = text(
    "SELECT application_name AS name, state, sync_state, CAST(extract(epoch FROM replay_lag) AS FLOAT) AS lag_seconds "
    "FROM pg_stat_replication ORDER BY application_name"
)


def is_sqlite(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


def is_missing(url: str) -> bool:
    """Whether this is a SQLite file that does not exist yet."""
    return is_sqlite(url) and not is_memory(url) and not Path(make_url(url).database or "").exists()


def is_memory(url: str) -> bool:
    return is_sqlite(url) and make_url(url).database in (None, "", ":memory:")


def make_sqlite_url(url: str) -> URL:
    """The URL for Python's own driver, whichever driver it names."""
    return make_url(url).set(drivername="sqlite")


def prepare_sqlite(engine: Engine, *, writes: bool, is_durable: bool) -> None:
    """Write-ahead log, durable commits, enforced foreign keys; the writer takes its lock when it begins."""
    pragmas = [
        "busy_timeout = 30000",
        "journal_mode = WAL",
        f"synchronous = {'FULL' if is_durable else 'OFF'}",
        "foreign_keys = ON",
        "temp_store = MEMORY",
        "cache_size = -65536",
        "wal_autocheckpoint = 4000",
    ]

    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas if writes else [*pragmas, "query_only = ON"]:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", set_up)
    if writes:
        event.listen(engine, "begin", begin)


def lock_migrations(connection: Connection) -> None:
    """Lets one process migrate at a time; held until the transaction ends."""
    if connection.dialect.name == POSTGRES:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7236544)")
    else:
        connection.exec_driver_sql("PRAGMA busy_timeout = 60000")
        connection.exec_driver_sql("BEGIN EXCLUSIVE")


def insert_new(table: Table, values: Mapping[str, ColumnElement[Any]]) -> Any:
    """INSERT … SELECT … ON CONFLICT DO NOTHING, which both databases spell alike but SQLAlchemy keeps apart."""
    rows = select(*(value.label(name) for name, value in values.items()))
    # SQLite reads `FROM x ON CONFLICT` as the start of a join, unless there is a WHERE.
    return _InsertNew(table).from_select(list(values), rows.where(literal(1) == 1))


class _InsertNew(Insert):
    inherit_cache = True


@compiles(_InsertNew)
def _compile_insert_new(element: _InsertNew, compiler: SQLCompiler, **options: Any) -> str:
    visit: Callable[..., str] = compiler.visit_insert
    sql = visit(element, **options)
    head, returning, tail = sql.rpartition(" RETURNING ")
    return f"{head} ON CONFLICT DO NOTHING{returning}{tail}" if returning else f"{sql} ON CONFLICT DO NOTHING"
