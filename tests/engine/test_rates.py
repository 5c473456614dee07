"""Queues that are paused, or from which only so many may start in a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.domain.rates import Rate
from rota.engine.submit import RunRequest
from rota.store.queues import QueueSettings
from tests.engine.stage import Clock, Stage, open_node, task


async def _limit(stage: Stage, starts: int, seconds: float, burst: int, *, queue: str = "slow") -> None:
    await stage.engine.put_queue("default", queue, QueueSettings(Rate(starts, seconds, burst)))


async def _fill(stage: Stage, count: int, *, queue: str = "slow", **fields: object) -> str:
    name = str(fields.pop("name", queue))
    workflow_id = await stage.define(task(name, queue=queue, **fields), name=name, max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id)] * count)
    return workflow_id


async def test_no_more_start_than_the_rate_allows(stage: Stage):
    await _limit(stage, 10, 60.0, 2)
    await _fill(stage, 20)
    worker = await stage.register(queues=("slow",))
    given = []
    for _ in range(13):
        given.append(len(await stage.claim(worker)))
        stage.clock.advance(5)
    # One every six seconds, and two after a rest.
    assert given == [2, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    stage.clock.advance(3600)
    assert len(await stage.claim(worker)) == 2


async def test_what_has_ended_gives_nothing_back(stage: Stage):
    await _limit(stage, 1, 60.0, 1)
    await _fill(stage, 3)
    worker = await stage.register(queues=("slow",))
    await stage.finish(worker, await stage.claim(worker))
    assert await stage.claim(worker) == []


async def test_a_slow_queue_never_hides_others(stage: Stage):
    await _limit(stage, 1, 3600.0, 1)
    await _fill(stage, 300, priority=100)
    stage.clock.advance(1)
    await _fill(stage, 5, queue="fast", priority=-100)
    worker = await stage.register(queues=("slow", "fast"))
    assert sorted(item.task for item in await stage.claim(worker, 6)) == [*["fast"] * 5, "slow"]


async def test_a_rate_and_a_pool_together(stage: Stage):
    await stage.add_pool("gpu", 2)
    await _limit(stage, 100, 60.0, 3)
    await _fill(stage, 10, pool="gpu")
    await _fill(stage, 10, name="plain")
    worker = await stage.register(queues=("slow",))
    items = [item.task for item in await stage.claim(worker)]
    assert len(items) == 3
    assert items.count("slow") <= 2


async def test_a_paused_queue_lets_nothing_start_and_what_runs_goes_on(stage: Stage):
    await _fill(stage, 3)
    worker = await stage.register(queues=("slow",))
    items = await stage.claim(worker, 1)
    await stage.engine.put_queue("default", "slow", QueueSettings(is_paused=True))
    assert await stage.claim(worker) == []
    await stage.finish(worker, items)
    await stage.engine.put_queue("default", "slow", QueueSettings())
    assert len(await stage.claim(worker)) == 2


async def test_queues_of_two_namespaces_are_two_queues(stage: Stage):
    await stage.engine.put_queue("default", "slow", QueueSettings(is_paused=True))
    other = await stage.define(task("a", queue="slow"), namespace="other")
    await _fill(stage, 2)
    await stage.submit(other)
    items = await stage.claim(await stage.register(queues=("slow",)))
    assert [item.task for item in items] == ["a"]


async def test_a_limit_that_is_taken_away_no_longer_counts(stage: Stage):
    await _limit(stage, 1, 60.0, 1)
    await _fill(stage, 5)
    worker = await stage.register(queues=("slow",))
    assert len(await stage.claim(worker)) == 1
    assert await stage.engine.delete_queue("default", "slow")
    assert not await stage.engine.delete_queue("default", "slow")
    assert len(await stage.claim(worker)) == 4


async def test_nodes_that_claim_at_once_share_one_rate(database_url: str, stage: Stage):
    await _limit(stage, 60, 60.0, 7)
    await _fill(stage, 200)
    worker = await stage.register(queues=("slow",))
    async with open_node(database_url, stage.clock) as second, open_node(database_url, stage.clock) as third:
        total = 0
        for _ in range(5):
            given = await asyncio.gather(
                *(node.engine.claim(worker, limit=3, wait_seconds=0.2) for node in (stage.node, second, third) * 2)
            )
            total += sum(len(part) for part in given)
            assert await stage.claim(worker) == []
            stage.clock.advance(4)
        assert total == 7 + 4 * 4


async def test_explain_says_when_the_next_one_may_start(stage: Stage):
    await _limit(stage, 1, 60.0, 1)
    workflow_id = await _fill(stage, 2)
    worker = await stage.register(queues=("slow",))
    (started,) = await stage.claim(worker)
    (waiting,) = (run.id for run in await stage.runs_of(workflow_id) if run.id != started.run_id)
    explanation = await stage.engine.explain_run(waiting)
    assert explanation.code == "rate_limit"
    assert explanation.next_check_at == stage.clock.now + timedelta(seconds=60)
    await stage.engine.put_queue("default", "slow", QueueSettings(is_paused=True))
    assert (await stage.engine.explain_run(waiting)).code == "queue_paused"


async def test_a_waiting_worker_is_served_at_the_instant(database_url: str):
    """By the database's clock: nobody calls the worker when the next start has been earned."""
    async with open_node(database_url) as node:
        stage = Stage(database_url, Clock(), node)
        await _limit(stage, 20, 1.0, 1)
        await _fill(stage, 3)
        worker = await stage.register(queues=("slow",))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(3):
            assert len(await node.engine.claim(worker, limit=1, wait_seconds=5)) == 1
        assert 0.08 <= loop.time() - begun < 1.5
