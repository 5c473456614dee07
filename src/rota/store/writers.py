"""Which transactions are still writing: what may yet appear among the numbers that have been handed out.

PostgreSQL hands a number out before its transaction commits, so a smaller one can appear after a larger one. SQLite
has one writer, and gives a number back when its transaction is undone: there, nothing appears late.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType

from rota.store.dialect import POSTGRES


class has_begun(FunctionElement[Any]):  # noqa: N801 - named as the SQL function that it renders
    """A condition that always holds. Once a statement has evaluated it, its transaction counts as a writer.

    It refers to no row, so it is evaluated before the first one, and before the first number is handed out.
    """

    type = NullType()
    inherit_cache = True


@compiles(has_begun)
def _has_begun(element: has_begun, compiler: SQLCompiler, **options: Any) -> str:
    return "1 = 1"


@compiles(has_begun, POSTGRES)
def _has_begun_postgres(element: has_begun, compiler: SQLCompiler, **options: Any) -> str:
    return "pg_current_xact_id() IS NOT NULL"


class new_writer(FunctionElement[int]):  # noqa: N801 - named as the SQL function that it renders
    """A number greater than that of every transaction which has begun to write."""

    type = BigInteger()
    inherit_cache = True


@compiles(new_writer)
def _new_writer(element: new_writer, compiler: SQLCompiler, **options: Any) -> str:
    return "0"


@compiles(new_writer, POSTGRES)
def _new_writer_postgres(element: new_writer, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)"


class oldest_writer(FunctionElement[int]):  # noqa: N801 - named as the SQL function that it renders
    """The number below which every transaction has ended."""

    type = BigInteger()
    inherit_cache = True


@compiles(oldest_writer)
def _oldest_writer(element: oldest_writer, compiler: SQLCompiler, **options: Any) -> str:
    return "0"


@compiles(oldest_writer, POSTGRES)
def _oldest_writer_postgres(element: oldest_writer, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)"
