"""The composition root of a worker process: a server elsewhere, and no database."""

from __future__ import annotations

from collections.abc import Callable

from rota.app.discovery import find_discovery
from rota.app.options import WORKER_METRICS_PORT, show_health, worker_options
from rota.observability.health import HealthServer
from rota.observability.metrics import Metrics
from rota.settings import Settings
from rota.worker.remote import RemoteSource
from rota.worker.service import Worker


class RemoteWorker:
    """A worker that asks servers for work over HTTP."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        discovery = find_discovery(settings)
        if discovery is None:
            self._source = RemoteSource(settings.server, settings.token)
        else:
            self._source = RemoteSource((), settings.token, find=discovery.find)
        self._worker = Worker(self._source, worker_options(settings))

    async def run(self, on_started: Callable[[], None]) -> None:
        """Works until `stop`."""
        metrics = Metrics()
        health = HealthServer("worker", metrics, lambda: self._worker.is_healthy, prepare=lambda: self._count(metrics))
        async with show_health(health, self._settings.metrics_port, WORKER_METRICS_PORT):
            on_started()
            async with self._source:
                await self._worker.run()

    def stop(self) -> None:
        """Ends the worker: running tasks get the drain time. Called again: now."""
        self._worker.stop()

    def _count(self, metrics: Metrics) -> None:
        metrics.set_worker(running=self._worker.slots.running, is_healthy=self._worker.is_healthy)
