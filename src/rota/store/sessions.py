"""Connections as transactions use them: a pool of asyncpg connections, or SQLite connections on threads.

A SQLite connection lives on its own thread and each statement is one trip to it. (An async driver takes four: measured
0.30 ms a statement against 0.12 ms, see docs/adr/0003-sqlite-on-a-thread.md.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Executable, RootTransaction
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncTransaction

from rota.store.refusals import is_read_only

T = TypeVar("T")


class Session(Protocol):
    """A connection with a transaction on it."""

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> tuple[Sequence[Any], int]:
        """The resulting rows, and how many rows were touched."""
        ...

    async def commit(self) -> None: ...


class Sessions(Protocol):
    """Where sessions come from."""

    def begin(self) -> Any:
        """An async context manager: a session whose transaction is rolled back unless it was committed."""
        ...

    async def close(self) -> None: ...


class PooledSession:
    """A session on a pooled connection."""

    def __init__(self, connection: AsyncConnection, transaction: AsyncTransaction) -> None:
        self._connection = connection
        self._transaction = transaction

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> tuple[Sequence[Any], int]:
        result = await self._connection.execute(statement, parameters)
        return (result.all() if result.returns_rows else ()), result.rowcount

    async def commit(self) -> None:
        await self._transaction.commit()


class PooledSessions:
    """Sessions from SQLAlchemy's asyncio engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[PooledSession]:
        async with self._engine.connect() as connection:
            try:
                yield PooledSession(connection, await connection.begin())
            except DBAPIError as error:
                if is_read_only(error):
                    # The server has been demoted; the next connection finds the one that leads now.
                    await connection.invalidate()
                raise

    async def close(self) -> None:
        await self._engine.dispose()


class ThreadedConnection:
    """One SQLite connection on a thread of its own. It is opened when it is first used.

    One that only reads has no transaction: each statement sees what was committed before it, as on PostgreSQL.
    """

    def __init__(self, engine: Engine, *, writes: bool) -> None:
        self._engine = engine
        self._writes = writes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rota-sqlite")
        self._connection: Connection | None = None
        self._transaction: RootTransaction | None = None

    async def execute(self, statement: Executable, parameters: Mapping[str, Any]) -> tuple[Sequence[Any], int]:
        return await self._call(lambda: self._execute(statement, parameters))

    async def commit(self) -> None:
        await self._call(self._commit)

    async def rollback(self) -> None:
        """Waits for whatever is still being executed, and undoes what was not committed."""
        if self._writes:
            await asyncio.shield(self._call(self._rollback))

    async def close(self) -> None:
        await self._call(self._close)
        self._thread.shutdown(wait=False)

    def _call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _execute(self, statement: Executable, parameters: Mapping[str, Any]) -> tuple[Sequence[Any], int]:
        if self._connection is None:
            self._connection = self._engine.connect()
        if self._transaction is None and self._writes:
            self._transaction = self._connection.begin()
        result = self._connection.execute(statement, parameters)
        return (result.all() if result.returns_rows else ()), result.rowcount

    def _commit(self) -> None:
        if self._transaction is not None:
            self._transaction.commit()
            self._transaction = None

    def _rollback(self) -> None:
        if self._transaction is not None:
            self._transaction.rollback()
            self._transaction = None

    def _close(self) -> None:
        self._rollback()
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()


class ThreadedSessions:
    """A few SQLite connections, handed out in turn; one of them if it is for writing."""

    def __init__(self, make_engine: Callable[[], Engine], *, size: int, writes: bool) -> None:
        self._make_engine = make_engine
        self._writes = writes
        self._made: list[ThreadedConnection] = []
        self._free: list[ThreadedConnection] = []
        self._turns = asyncio.Semaphore(size)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[ThreadedConnection]:
        async with self._turns:
            connection = self._take()
            try:
                yield connection
            finally:
                await connection.rollback()
                self._free.append(connection)

    async def close(self) -> None:
        for connection in self._made:
            await connection.close()

    def _take(self) -> ThreadedConnection:
        if self._free:
            return self._free.pop()
        connection = ThreadedConnection(self._make_engine(), writes=self._writes)
        self._made.append(connection)
        return connection
