"""Wake-ups between processes that share a PostgreSQL database: LISTEN, and NOTIFY outside the hot transactions.

NOTIFY takes a database-wide lock when its transaction commits. So it is not part of the transactions that cause it:
one connection sends what has gathered, at most every few milliseconds. A call lost with a dying process is made up
for by the waiters' own slow polls.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import structlog
from sqlalchemy import bindparam, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from rota.store.wakeups import Topic, Wakeups

log = structlog.get_logger(__name__)

CHANNEL = "rota"
PAUSE_SECONDS = 0.003
NOTIFY = select(func.pg_notify(CHANNEL, bindparam("payload")))


class Listener:
    """Carries wake-ups to and from the other processes. Reconnects for as long as it is started."""

    def __init__(self, engine: AsyncEngine, wakeups: Wakeups) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._wakeups = wakeups
        self._identity = uuid.uuid4().hex[:12]
        self._pending: set[Topic] = set()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        connection = await self._connect()
        self._wakeups.forward = self._gather
        self._task = asyncio.create_task(self._serve(connection), name="rota-listener")

    async def stop(self) -> None:
        self._wakeups.forward = None
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _gather(self, topics: frozenset[Topic]) -> None:
        self._pending |= topics
        self._ready.set()

    async def _serve(self, connection: AsyncConnection) -> None:
        while True:
            try:
                await self._send_forever(connection)
            except (DBAPIError, OSError) as error:
                log.warning("listener_lost", reason=str(error)[:200])
            finally:
                await connection.invalidate()
                await connection.close()
            connection = await self._reconnect()
            # Whatever was called meanwhile went unheard.
            self._wakeups.call_locally(Topic)

    async def _send_forever(self, connection: AsyncConnection) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            topics, self._pending = self._pending, set()
            await connection.execute(NOTIFY, {"payload": f"{self._identity}:{','.join(sorted(topics))}"})
            await asyncio.sleep(PAUSE_SECONDS)

    async def _reconnect(self) -> AsyncConnection:
        delay_seconds = 0.1
        while True:
            try:
                return await self._connect()
            except Exception as error:  # noqa: BLE001 - the driver itself listens, and raises what it likes
                log.warning("listener_reconnect_failed", reason=str(error)[:200])
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(delay_seconds * 2, 5.0)

    async def _connect(self) -> AsyncConnection:
        connection = await self._engine.connect()
        try:
            raw = (await connection.get_raw_connection()).driver_connection
            if raw is None:
                raise OSError("the database connection was closed")
            await raw.add_listener(CHANNEL, self._hear)
            raw.add_termination_listener(lambda _connection: self._ready.set())
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        return connection

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        sender, _, words = payload.partition(":")
        if sender != self._identity:
            self._wakeups.call_locally(topic for topic in Topic if topic.value in words.split(","))
