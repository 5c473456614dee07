"""Limits of what may wait: beyond them callers are refused, and what Rota promised before is not."""

from __future__ import annotations

import pytest

from rota.domain.errors import CapacityExceeded, TooManyRequests
from rota.domain.job import parse_job
from rota.engine.submit import RunRequest
from rota.observability.metrics import Metrics
from tests.engine.stage import Stage, open_node, task

GIGABYTE = 1 << 30


def _count_again(stage: Stage) -> None:
    stage.engine._core.backlog.count_again_at = 0.0


async def test_more_jobs_than_may_wait_are_refused(database_url: str, stage: Stage):
    async with open_node(database_url, stage.clock, queue_job_limit=5) as node:
        limited = Stage(database_url, stage.clock, node)
        workflow_id = await limited.define(task("a"), max_active_runs=0)
        await node.engine.submit_many([RunRequest(workflow_id)] * 3)
        with pytest.raises(CapacityExceeded, match="3 jobs wait and 3 more would be over the limit of 5"):
            await node.engine.submit_many([RunRequest(workflow_id)] * 3)
        # All or none.
        assert len(await stage.runs_of(workflow_id)) == 3
        jobs = [parse_job({"command": "true"}, now=stage.clock.now) for _ in range(2)]
        await node.engine.create_jobs(jobs)
        with pytest.raises(CapacityExceeded):
            await node.engine.create_job(jobs[0])
        recurring = parse_job({"command": "true", "schedule": "* * * * *"}, now=stage.clock.now)
        with pytest.raises(CapacityExceeded, match="queue_job_limit"):
            await node.engine.create_job(recurring)
        assert await limited.work(await limited.register())
        _count_again(limited)
        await node.engine.create_job(recurring)
        _count_again(limited)
        capacity = await node.engine.read_capacity()
        assert (capacity.jobs_used, capacity.jobs_limit) == (1, 5)


async def test_everything_that_waits_is_counted(stage: Stage):
    turns = await stage.define(task("a"), name="turns", max_active_runs=1)
    await stage.engine.submit_many([RunRequest(turns)] * 3)
    keyed = await stage.define(task("a", concurrency_key="k"), name="keyed", max_active_runs=0)
    await stage.engine.submit_many([RunRequest(keyed)] * 4)
    await stage.define(task("a"), name="timed", schedule_cron="0 0 1 1 *")
    await stage.define(task("a"), name="paused", schedule_cron="0 0 1 1 *", is_active=False)
    # One that is ready, two that wait for their turns, four for their key, one schedule.
    assert (await stage.engine.read_capacity()).jobs_used == 8


async def test_ticks_of_schedules_are_never_refused(database_url: str, stage: Stage):
    async with open_node(database_url, stage.clock, queue_job_limit=1) as node:
        limited = Stage(database_url, stage.clock, node)
        workflow_id = await limited.define(task("a"), name="timed", schedule_cron="* * * * *")
        stage.clock.advance(180)
        assert (await node.engine.fire()).runs >= 1
        with pytest.raises(CapacityExceeded):
            await limited.submit(workflow_id)


async def test_a_namespace_cannot_fill_the_queue_of_all(database_url: str, stage: Stage):
    async with open_node(database_url, stage.clock, namespace_backlog_limit=3) as node:
        limited = Stage(database_url, stage.clock, node)
        loud = await limited.define(task("a"), namespace="loud", max_active_runs=0)
        quiet = await limited.define(task("a"), namespace="quiet", max_active_runs=0)
        await node.engine.submit_many([RunRequest(loud)] * 3)
        with pytest.raises(TooManyRequests, match="3 jobs of namespace loud wait") as refusal:
            await limited.submit(loud)
        assert refusal.value.retry_after_seconds > 0
        await node.engine.submit_many([RunRequest(quiet)] * 3)


async def test_a_process_that_keeps_too_much_memory_takes_no_more(database_url: str, stage: Stage):
    async with open_node(database_url, stage.clock, queue_memory_bytes=1) as node:
        limited = Stage(database_url, stage.clock, node)
        workflow_id = await limited.define(task("a"))
        with pytest.raises(CapacityExceeded, match="queue_memory_limit"):
            await limited.submit(workflow_id)
    async with open_node(database_url, stage.clock, queue_memory_bytes=1024 * GIGABYTE) as node:
        assert await Stage(database_url, stage.clock, node).submit(workflow_id)


def test_refusals_and_capacity_are_measured():
    metrics = Metrics()
    metrics.count_refusals("jobs")
    metrics.set_capacity(7, 10)
    text = metrics.render().decode()
    assert 'rota_refusals_total{reason="jobs"} 1.0' in text
    assert "rota_capacity_jobs 7.0" in text
    assert "rota_capacity_jobs_limit 10.0" in text
