"""The loops: they wake up when something changes, survive their duties, and stop when asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from rota.domain.errors import Unavailable
from rota.domain.spec_parse import parse_workflow
from rota.domain.work import Registration
from rota.engine.engine import Engine
from rota.observability.metrics import Metrics
from rota.scheduler.service import Scheduler, SchedulerOptions
from rota.store.database import Database, DatabaseOptions

# Only a wake-up can be quicker than that.
NO_POLL = SchedulerOptions(slot_gap_seconds=60.0)


@asynccontextmanager
async def _running(scheduler):
    async with asyncio.timeout(20):
        task = asyncio.create_task(scheduler.run())
        try:
            yield
        finally:
            scheduler.stop()
            await task


@dataclass
class FaultyDuty:
    """Fails in its first rounds, with each of these errors, then works."""

    errors: list[Exception]
    name: str = "faulty"
    interval_seconds: float = 0.0
    worked: asyncio.Event = field(default_factory=asyncio.Event)

    async def run_once(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        self.interval_seconds = 60.0
        self.worked.set()
        return 1


async def test_a_failing_duty_is_logged_and_comes_round_again(bench):
    duty = FaultyDuty([ValueError("no"), Unavailable("the database is away")])
    scheduler = Scheduler(bench.engine, bench.metrics, NO_POLL, duties=[duty])
    with capture_logs() as lines:
        async with _running(scheduler):
            await duty.worked.wait()
    events = [(line["event"], line["log_level"]) for line in lines if line.get("duty") == "faulty"]
    assert events == [("duty_failed", "error"), ("duty_put_off", "warning")]
    assert bench.metrics.registry.get_sample_value("rota_duty_failures_total", {"duty": "faulty"}) == 2


async def test_a_new_schedule_wakes_the_clock_up(bench):
    async with _running(Scheduler(bench.engine, bench.metrics, NO_POLL)):
        registered = await bench.engine.register(Registration(name="w"))
        assert await bench.engine.claim(registered.identity, limit=1) == ()
        await bench.apply(run_at=bench.clock.now.isoformat())
        assert len(await bench.engine.claim(registered.identity, limit=1, wait_seconds=10)) == 1


async def test_stopping_takes_no_time(bench):
    scheduler = Scheduler(bench.engine, bench.metrics, NO_POLL)
    loop = asyncio.get_running_loop()
    async with _running(scheduler):
        await bench.apply(run_at=bench.clock.now.isoformat())
        stopped_at = loop.time()
    assert loop.time() - stopped_at < 5


@pytest.fixture
async def engines(database_url):
    """Two nodes on one database, on real time."""
    databases = [Database(DatabaseOptions(database_url)) for _ in range(2)]
    for database in databases:
        await database.open()
    yield [Engine(database) for database in databases]
    for database in databases:
        await database.close()


async def test_several_schedulers_fire_a_tick_once_and_in_time(engines):
    due_at = datetime.now(UTC) + timedelta(seconds=1)
    document = {"name": "flow", "run_at": due_at.isoformat(), "tasks": [{"name": "a", "command": "true"}]}
    await engines[0].apply_workflow(parse_workflow(document, now=datetime.now(UTC)))
    metrics = [Metrics(), Metrics()]
    first, second = (Scheduler(*pair, NO_POLL) for pair in zip(engines, metrics, strict=True))
    worker = (await engines[0].register(Registration(name="w", concurrency=5))).identity
    async with _running(first), _running(second):
        assignments = await engines[0].claim(worker, limit=5, wait_seconds=10)
        assert await engines[0].claim(worker, limit=5) == ()
    assert len(assignments) == 1
    late = [found.registry.get_sample_value("rota_schedule_lateness_seconds_sum") or 0.0 for found in metrics]
    assert 0 <= max(late) < 1
    fired = [
        found.registry.get_sample_value("rota_schedule_ticks_total", {"decision": "fired"}) or 0 for found in metrics
    ]
    assert sum(fired) == 1
