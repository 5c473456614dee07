"""A small HTTP server for processes without an API: `/metrics` and `/healthz`."""

from __future__ import annotations

import errno
from collections.abc import Callable

import structlog
from aiohttp import web

from rota.domain.errors import Unavailable
from rota.observability.metrics import Metrics

log = structlog.get_logger(__name__)


class HealthServer:
    """Answers until it is stopped. `prepare` brings the metrics up to date before they are read."""

    def __init__(
        self,
        service: str,
        metrics: Metrics,
        is_healthy: Callable[[], bool],
        *,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._is_healthy = is_healthy
        self._prepare = prepare
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        """Raises `Unavailable` if the port is taken."""
        app = web.Application()
        app.router.add_get("/metrics", self._show_metrics)
        app.router.add_get("/healthz", self._show_health)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
            raise Unavailable(f"port {port} for metrics {reason}", code="port_in_use") from error
        self._runner = runner

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        """Where it listens; 0: nowhere."""
        addresses = self._runner.addresses if self._runner else []
        return int(addresses[0][1]) if addresses else 0

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        if self._prepare is not None:
            self._prepare()
        return web.Response(body=self._metrics.render(), headers={"Content-Type": self._metrics.content_type})

    async def _show_health(self, _request: web.Request) -> web.Response:
        is_healthy = self._is_healthy()
        body = {"status": "ok" if is_healthy else "unavailable", "service": self._service}
        return web.json_response(body, status=200 if is_healthy else 503)
