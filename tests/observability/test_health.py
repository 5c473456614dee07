"""The small server of processes without an API."""

from __future__ import annotations

import aiohttp
import pytest

from rota.domain.errors import Unavailable
from rota.observability.health import HealthServer
from rota.observability.metrics import Metrics


async def _get(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_health_and_metrics():
    metrics = Metrics()
    is_healthy = [True]
    server = HealthServer("worker", metrics, lambda: is_healthy[0], prepare=lambda: metrics.count_claims(1))
    await server.start("127.0.0.1", 0)
    try:
        base = f"http://127.0.0.1:{server.port}"
        assert await _get(f"{base}/healthz") == (200, '{"status": "ok", "service": "worker"}')
        is_healthy[0] = False
        assert (await _get(f"{base}/healthz"))[0] == 503
        status, text = await _get(f"{base}/metrics")
        assert status == 200
        assert "rota_claims_total 1.0" in text
    finally:
        await server.stop()


async def test_a_port_in_use_is_named():
    first = HealthServer("worker", Metrics(), lambda: True)
    await first.start("127.0.0.1", 0)
    try:
        with pytest.raises(Unavailable, match=f"port {first.port} for metrics is in use"):
            await HealthServer("worker", Metrics(), lambda: True).start("127.0.0.1", first.port)
    finally:
        await first.stop()
