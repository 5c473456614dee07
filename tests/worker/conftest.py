"""A worker that runs for the length of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from rota.worker.options import WorkerOptions
from rota.worker.service import Worker
from tests.worker.driver import ScriptedSource

StartWorker = Callable[..., Awaitable[Worker]]


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


@pytest.fixture
async def start_worker(source: ScriptedSource) -> AsyncIterator[StartWorker]:
    """Starts a worker on the scripted source; what still runs at the end of the test is killed."""
    started: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(**options: Any) -> Worker:
        values: dict[str, Any] = {"grace_seconds": 0.5, "drain_seconds": 20.0, "farewell_seconds": 5.0}
        worker = Worker(source, WorkerOptions(**(values | options)))
        running = asyncio.create_task(worker.run())
        started.append((worker, running))
        worker.running = running  # type: ignore[attr-defined]
        await source.until(lambda: running.done() or len(source.registrations) > 0)
        return worker

    yield start
    for worker, running in started:
        worker.cancel_now()
        await running
