"""The composition root of a server process: database, engine, and the parts that it is to have."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp

from rota.api.app import close_polls, make_api
from rota.api.options import ApiOptions
from rota.app.access import access_options, check_exposure, find_tls_files
from rota.app.discovery import find_discovery
from rota.app.events import deliver_events, relay_events
from rota.app.files import hold_file, prepare_database
from rota.app.http_server import HttpServer
from rota.app.options import (
    SCHEDULER_METRICS_PORT,
    engine_options,
    scheduler_options,
    show_health,
    worker_options,
)
from rota.app.secret_keys import open_vault
from rota.cluster.join import Introduction, introduce
from rota.cluster.member import Member, MemberOptions
from rota.domain.errors import Unavailable
from rota.engine.engine import Engine
from rota.engine.vault import Vault
from rota.events.hub import Hub
from rota.observability.health import HealthServer
from rota.observability.memory import read_memory
from rota.observability.metrics import Metrics
from rota.scheduler.duties import Duty
from rota.scheduler.folder import FolderDuty
from rota.scheduler.service import Scheduler
from rota.settings import Settings, choose_database_url, find_database_file, hide_password
from rota.store.database import Database, DatabaseOptions
from rota.worker.service import Worker

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process consists of."""

    has_api: bool = False
    has_scheduler: bool = False
    worker_count: int = 0
    # Whether an older database is brought up to date, or refused.
    migrates: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """Told once everything runs."""

    url: str
    database: str
    worker_count: int


class Rota:
    """A server process: database, engine, and those of API, scheduler and workers that it is to have."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self._settings = settings
        self._parts = parts
        self._metrics = Metrics()
        self._vault = Vault()
        self._stopping = asyncio.Event()
        self._workers: list[Worker] = []
        self._api: FastAPI | None = None
        self._member: Member | None = None

    async def run(self, on_started: Callable[[Started], None]) -> None:
        """Runs until `stop`. Raises a RotaError when it cannot start."""
        url = choose_database_url(self._settings)
        with contextlib.ExitStack() as stack:
            server = None
            if self._parts.has_api:
                server = HttpServer(self._settings.host, self._settings.port, find_tls_files(self._settings))
                stack.callback(server.close)
            stack.enter_context(hold_file(find_database_file(url)))
            prepare_database(url, migrates=self._parts.migrates)
            async with _open_database(self._settings, url) as database:
                if self._parts.has_api:
                    await check_exposure(self._settings, database)
                started = Started(server.url if server else "", hide_password(url), self._parts.worker_count)
                self._vault = open_vault(self._settings, url)
                await self._run_parts(database, server, lambda: on_started(started))

    def stop(self) -> None:
        """Ends the process: running tasks get the drain time. Called again: now."""
        for worker in self._workers if self._stopping.is_set() else ():
            worker.cancel_now()
        self._stopping.set()

    async def _run_parts(self, database: Database, server: HttpServer | None, on_started: Callable[[], None]) -> None:
        engine = Engine(database, engine_options(self._settings), metrics=self._metrics, vault=self._vault)
        listening = asyncio.Event()
        self._member = self._make_member(database, server)
        await self._join(self._member, server.url if server else "")
        scheduler = self._make_scheduler(engine, self._member)
        self._workers = [
            Worker(engine, replace(worker_options(self._settings), name=self._name_worker(number)))
            for number in range(1, self._parts.worker_count + 1)
        ]
        hub = Hub(database, metrics=self._metrics)
        serving = _start("api", server.run(self._make_app(engine, database, hub), listening)) if server else None
        parts = [_start("member", self._member.run())]
        parts += [_start("worker", worker.run()) for worker in self._workers]
        if scheduler is not None:
            parts.append(_start("scheduler", scheduler.run()))
        async with (
            self._show_health(has_server=server is not None),
            relay_events(hub if server else None),
            deliver_events(self._settings, database, self._member if scheduler else None, self._metrics),
        ):
            everything = [*parts, serving] if serving else parts
            if serving:
                await _wait_for_first(_start("listening", listening.wait()), serving)
            if listening.is_set() or not serving:
                on_started()
            await _wait_for_first(_start("stopping", self._stopping.wait()), *everything)
            await self._end(everything, scheduler, server, parts)
        await engine.close()

    async def _end(
        self,
        everything: Sequence[asyncio.Task[Any]],
        scheduler: Scheduler | None,
        server: HttpServer | None,
        parts: Sequence[asyncio.Task[Any]],
    ) -> None:
        """The leadership at once; then the workers, while there is somebody to take their results; then the API."""
        self._stopping.set()
        if self._member is not None:
            self._member.stop()
        if scheduler is not None:
            scheduler.stop()
        for worker in self._workers:
            worker.stop()
        await asyncio.gather(*parts, return_exceptions=True)
        if server is not None:
            if self._api is not None:
                close_polls(self._api)
            server.stop()
        for result in await asyncio.gather(*everything, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _make_app(self, engine: Engine, database: Database, hub: Hub) -> ASGIApp:
        service = "api" if self._parts.worker_count == 0 and not self._parts.has_scheduler else "rota"
        options = ApiOptions(
            service=service,
            registry=self._metrics.registry,
            access=access_options(self._settings),
            node=self._member,
            outcomes=self._metrics.outcomes,
            failure_threshold=self._settings.health_failure_threshold,
        )
        self._api = make_api(engine, database, options, hub)
        return self._api

    def _name_worker(self, number: int) -> str:
        return self._settings.worker_id if self._parts.worker_count == 1 else f"{self._settings.worker_id}-{number}"

    def _make_member(self, database: Database, server: HttpServer | None) -> Member:
        held = {"api": server, "scheduler": self._parts.has_scheduler, "worker": self._parts.worker_count}
        options = MemberOptions(
            self._settings.node_id, server.url if server else "", tuple(role for role, part in held.items() if part)
        )
        return Member(database, options, measure=self._measure, metrics=self._metrics)

    def _measure(self) -> dict[str, Any]:
        """What the others are told of this node."""
        finished, failed = self._metrics.outcomes.count()
        memory = read_memory()
        return {
            "memory_bytes": memory.used_bytes,
            "memory_percent": memory.utilization_percent,
            "finished": finished,
            "failed": failed,
        }

    async def _join(self, member: Member, url: str) -> None:
        """Where others may be found, they are told of this node, which must share their database."""
        discovery = find_discovery(self._settings)
        if discovery is None and not self._settings.join:
            return
        try:
            servers = self._settings.join or (await discovery.find() if discovery else ())
        except Unavailable as error:
            log.info("nobody_to_join", reason=error.detail)
            return
        await member.run_once()
        await introduce(Introduction(member.node_id, member.name, url, self._settings.token), servers)

    def _make_scheduler(self, engine: Engine, member: Member) -> Scheduler | None:
        if not self._parts.has_scheduler:
            return None
        duties: list[Duty] = []
        if self._settings.workflows is not None:
            duties.append(FolderDuty(engine, self._settings.workflows))
        options = scheduler_options(self._settings)
        return Scheduler(engine, self._metrics, options, duties=duties, leadership=member)

    @contextlib.asynccontextmanager
    async def _show_health(self, *, has_server: bool) -> AsyncIterator[None]:
        """A scheduler without an API beside it has its own port for metrics."""
        if has_server:
            yield
            return
        async with show_health(
            HealthServer("scheduler", self._metrics, lambda: not self._stopping.is_set()),
            self._settings.metrics_port,
            SCHEDULER_METRICS_PORT,
        ):
            yield


@contextlib.asynccontextmanager
async def _open_database(settings: Settings, url: str) -> AsyncIterator[Database]:
    database = Database(DatabaseOptions(url, max_open_connections=settings.db_max_open_conns))
    try:
        await database.open()
        yield database
    finally:
        await database.close()


def _start(name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(work, name=f"rota-{name}")


async def _wait_for_first(wait: asyncio.Task[Any], *parts: asyncio.Task[Any]) -> None:
    """Until `wait` is over or one of the parts has ended, which none should do by itself."""
    await asyncio.wait({wait, *parts}, return_when=asyncio.FIRST_COMPLETED)
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)
