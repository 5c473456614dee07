"""Connections and transactions: one writer on SQLite, a pool on PostgreSQL, one retry policy for both."""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from sqlalchemy import Engine, Executable, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import StaticPool

from rota.domain.errors import Unavailable
from rota.store.connect import open_engine
from rota.store.dialect import READER_SETTINGS, WRITER_SETTINGS, is_memory, is_sqlite, make_sqlite_url, prepare_sqlite
from rota.store.listen import Listener
from rota.store.refusals import explain_refusal, is_transient, is_unusable
from rota.store.sessions import PooledSessions, Session, Sessions, ThreadedSessions
from rota.store.wakeups import Topic, Wakeups

log = structlog.get_logger(__name__)
T = TypeVar("T")
Clock = Callable[[], datetime]
SQLITE_READERS = 4
# The code of the error that leaves open whether something was done.
OUTCOME_UNKNOWN = "outcome_unknown"


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """How to connect. A `clock` replaces the database's own time (tests, simulations)."""

    url: str
    max_open_connections: int = 10
    max_lifetime_seconds: float = 1800
    retry_seconds: float = 15
    is_durable: bool = True
    clock: Clock | None = None


class Transaction:
    """One transaction: runs statements, and remembers whom to wake up once it is committed."""

    def __init__(self, session: Session, now: datetime | None) -> None:
        self._session = session
        self._parameters: dict[str, Any] = {} if now is None else {"now": now}
        self._topics: set[Topic] = set()
        self._afterwards: list[Callable[[], None]] = []

    async def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Executes; all resulting rows."""
        rows, _count = await self._session.execute(statement, {**self._parameters, **(parameters or {})})
        return rows

    async def row(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Any | None:
        """Executes; the first resulting row."""
        found = await self.rows(statement, parameters)
        return found[0] if found else None

    async def run(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> int:
        """Executes a statement that returns no rows; how many rows it touched."""
        _rows, count = await self._session.execute(statement, {**self._parameters, **(parameters or {})})
        return count

    def wake(self, topic: Topic) -> None:
        """Calls `topic` after the commit."""
        self._topics.add(topic)

    def after_commit(self, work: Callable[[], None]) -> None:
        """Does `work` once it is committed, and not if it is not."""
        self._afterwards.append(work)

    def finish(self) -> None:
        """It is committed."""
        for work in self._afterwards:
            work()

    @property
    def topics(self) -> frozenset[Topic]:
        return frozenset(self._topics)


Fence = Callable[[Transaction], Awaitable[None]]


class Database:
    """The one door to the data."""

    def __init__(self, options: DatabaseOptions) -> None:
        self.options = options
        self.wakeups = Wakeups()
        self.is_sqlite = is_sqlite(options.url)
        self._listener: Listener | None = None
        self._fence: Fence | None = None
        self._writer: Sessions
        self._reader: Sessions
        if self.is_sqlite:
            self._writer = self._open_sqlite(writes=True)
            # What is in memory belongs to one connection.
            self._reader = self._writer if is_memory(options.url) else self._open_sqlite(writes=False)
        else:
            engine = self._open_postgres(WRITER_SETTINGS)
            self._writer = PooledSessions(engine)
            # Reading needs no transaction, and two trips to the server less without one.
            self._reader = PooledSessions(self._open_postgres(READER_SETTINGS, isolation_level="AUTOCOMMIT"))
            self._listener = Listener(engine, self.wakeups)

    async def open(self) -> None:
        """Starts to listen for wake-ups from other processes."""
        if self._listener:
            await self._listener.start()

    async def close(self) -> None:
        if self._listener:
            await self._listener.stop()
        await self._writer.close()
        if self._reader is not self._writer:
            await self._reader.close()

    def fenced(self, fence: Fence) -> Database:
        """The same database for somebody whose every transaction begins with `fence`, which may refuse it."""
        twin = copy.copy(self)
        twin._fence = fence
        return twin

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` in a transaction, again if the database asks for it, then wakes up who waits for its effects."""
        return await self._retry(self._writer, work)

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work`, which only reads, beside the writers."""
        return await self._retry(self._reader, work)

    async def _once(self, sessions: Sessions, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with sessions.begin() as session:
            transaction = Transaction(session, self._now())
            if self._fence is not None and sessions is self._writer:
                await self._fence(transaction)
            result = await work(transaction)
            try:
                await session.commit()
            except (DBAPIError, OSError) as error:
                # It may or may not have been committed: doing it again could do it twice.
                reason = f"the database was lost while it committed: {error}"
                raise Unavailable(reason, code=OUTCOME_UNKNOWN) from error
        transaction.finish()
        if transaction.topics:
            self.wakeups.call(transaction.topics)
        return result

    async def _retry(self, sessions: Sessions, work: Callable[[Transaction], Awaitable[T]]) -> T:
        give_up_at = time.monotonic() + self.options.retry_seconds
        delay_seconds = 0.005
        while True:
            try:
                return await self._once(sessions, work)
            except (DBAPIError, PoolTimeout, OSError) as error:
                if isinstance(error, DBAPIError) and is_unusable(error):
                    raise Unavailable(explain_refusal(error, self.options.url), code="database_unusable") from error
                if not is_transient(error):
                    raise
                if time.monotonic() > give_up_at:
                    raise Unavailable(f"the database cannot be used now: {error}") from error
                log.info("database_retry", reason=str(error)[:200])
            await asyncio.sleep(delay_seconds * (0.5 + random.random()))
            delay_seconds = min(delay_seconds * 2, 1.0)

    def _now(self) -> datetime | None:
        if self.options.clock:
            return self.options.clock()
        # SQLite lives on this host and has no clock but this one.
        return datetime.now(UTC) if self.is_sqlite else None

    def _open_postgres(self, settings: Mapping[str, str], **options: Any) -> AsyncEngine:
        return open_engine(
            self.options.url,
            settings,
            **options,
            pool_size=self.options.max_open_connections,
            # One more for the listener, which keeps its connection.
            max_overflow=1,
            pool_recycle=int(self.options.max_lifetime_seconds),
        )

    def _open_sqlite(self, *, writes: bool) -> ThreadedSessions:
        def make() -> Engine:
            engine = create_engine(make_sqlite_url(self.options.url), poolclass=StaticPool, hide_parameters=True)
            prepare_sqlite(engine, writes=writes, is_durable=self.options.is_durable)
            return engine

        return ThreadedSessions(make, size=1 if writes else SQLITE_READERS, writes=writes)
