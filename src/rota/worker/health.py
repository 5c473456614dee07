"""`/healthz` and `/metrics` of a worker, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web


class HealthServer:
    """Answers liveness and metrics; what they are is the caller's to say."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        is_healthy: Callable[[], bool],
        render_metrics: Callable[[], bytes],
        content_type: str = "text/plain; version=0.0.4; charset=utf-8",
    ) -> None:
        self._host = host
        self._port = port
        self._is_healthy = is_healthy
        self._render_metrics = render_metrics
        self._content_type = content_type
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        application = web.Application()
        application.router.add_get("/healthz", self._answer_health)
        application.router.add_get("/metrics", self._answer_metrics)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    @property
    def port(self) -> int:
        """The port in use, also when any free one was asked for with 0."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer_health(self, request: web.Request) -> web.Response:
        is_healthy = self._is_healthy()
        body = {"status": "ok" if is_healthy else "unavailable", "service": "worker"}
        return web.json_response(body, status=200 if is_healthy else 503)

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._render_metrics(), headers={"Content-Type": self._content_type})
