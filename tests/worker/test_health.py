"""The worker's own port."""

from __future__ import annotations

import aiohttp
import pytest

from rota.worker.health import HealthServer


@pytest.mark.parametrize(("is_healthy", "status", "word"), [(True, 200, "ok"), (False, 503, "unavailable")])
async def test_health_and_metrics(is_healthy, status, word):
    server = HealthServer(
        host="127.0.0.1", port=0, is_healthy=lambda: is_healthy, render_metrics=lambda: b"answer 42\n"
    )
    await server.open()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
            async with session.get("/healthz") as response:
                assert response.status == status
                assert await response.json() == {"status": word, "service": "worker"}
            async with session.get("/metrics") as response:
                assert response.status == 200
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert await response.read() == b"answer 42\n"
    finally:
        await server.close()
