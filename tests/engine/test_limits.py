"""Pools and max_active_tasks: counted from live leases, filtered before the limit of a claim."""

from __future__ import annotations

import asyncio

from rota.engine.submit import RunRequest
from tests.engine.stage import LEASE_SECONDS, Stage, open_node, task


async def _fill(stage: Stage, workflow_id: str, count: int) -> None:
    await stage.engine.submit_many([RunRequest(workflow_id)] * count)


async def test_a_pool_is_never_overfull(stage: Stage):
    await stage.add_pool("gpu", 3)
    await _fill(stage, await stage.define(task("a", pool="gpu"), max_active_runs=0), 10)
    worker = await stage.register()
    items = await stage.claim(worker)
    assert len(items) == 3
    assert await stage.claim(worker) == []
    await stage.finish(worker, items[:2])
    assert len(await stage.claim(worker)) == 2


async def test_slots_have_weights(stage: Stage):
    await stage.add_pool("gpu", 5)
    await _fill(stage, await stage.define(task("a", pool="gpu", pool_slots=2), max_active_runs=0), 5)
    worker = await stage.register()
    assert len(await stage.claim(worker)) == 2
    light = await stage.define(task("b", pool="gpu"), name="light", max_active_runs=0)
    await _fill(stage, light, 5)
    assert [item.task for item in await stage.claim(worker)] == ["b"]


async def test_a_task_larger_than_its_pool_waits_and_hides_nothing(stage: Stage):
    await stage.add_pool("gpu", 1)
    await stage.start(task("huge", pool="gpu", pool_slots=2), task("small", pool="gpu"))
    worker = await stage.register()
    assert await stage.work(worker) == ["small"]


async def test_a_full_pool_never_hides_other_work(stage: Stage):
    await stage.add_pool("gpu", 1)
    await _fill(stage, await stage.define(task("full", pool="gpu", priority=100), name="full", max_active_runs=0), 500)
    worker = await stage.register()
    assert [item.task for item in await stage.claim(worker, 1)] == ["full"]
    stage.clock.advance(1)
    await _fill(stage, await stage.define(task("free", priority=-100), name="free", max_active_runs=0), 5)
    assert [item.task for item in await stage.claim(worker, 5)] == ["free"] * 5


async def test_pools_of_two_namespaces_are_two_pools(stage: Stage):
    for namespace in ("default", "other"):
        await stage.add_pool("gpu", 1, namespace)
        workflow_id = await stage.define(task("a", pool="gpu"), namespace=namespace, max_active_runs=0)
        await _fill(stage, workflow_id, 3)
    assert len(await stage.claim(await stage.register())) == 2


async def test_max_active_tasks(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b"), task("c"), max_active_tasks=4, max_active_runs=0)
    await _fill(stage, workflow_id, 5)
    worker = await stage.register()
    items = await stage.claim(worker)
    assert len(items) == 4
    await stage.finish(worker, items[:1])
    assert len(await stage.claim(worker)) == 1


async def test_a_pool_and_a_workflow_limit_together(stage: Stage):
    await stage.add_pool("gpu", 3)
    first = await stage.define(task("a", pool="gpu"), name="first", max_active_tasks=2, max_active_runs=0)
    second = await stage.define(task("b", pool="gpu"), name="second", max_active_tasks=2, max_active_runs=0)
    await _fill(stage, first, 5)
    await _fill(stage, second, 5)
    items = [item.task for item in await stage.claim(await stage.register())]
    assert len(items) == 3
    assert max(items.count("a"), items.count("b")) == 2


async def test_a_changed_limit_counts_at_once(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_tasks=1, max_active_runs=0)
    await _fill(stage, workflow_id, 10)
    worker = await stage.register()
    assert len(await stage.claim(worker)) == 1
    await stage.define(task("a"), max_active_tasks=3, max_active_runs=0)
    assert len(await stage.claim(worker)) == 2


async def test_a_limit_that_is_taken_away_no_longer_counts(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_tasks=1, max_active_runs=0)
    await _fill(stage, workflow_id, 10)
    worker = await stage.register()
    assert len(await stage.claim(worker)) == 1
    await stage.define(task("a"), max_active_runs=0)
    assert len(await stage.claim(worker)) == 9


async def test_slots_come_back_however_an_attempt_ends(stage: Stage):
    await stage.add_pool("gpu", 1)
    workflow_id = await stage.define(task("a", pool="gpu", retry_count=1), max_active_runs=0)
    await _fill(stage, workflow_id, 6)
    worker = await stage.register()

    async def take() -> list:
        items = await stage.claim(worker)
        assert len(items) == 1
        assert await stage.claim(worker) == []
        return items

    await stage.finish(worker, await take(), "failed")
    await stage.finish(worker, await take(), "success")
    await stage.finish(worker, await take(), "skipped")
    (item,) = await take()
    await stage.engine.cancel_run(item.run_id)
    await stage.finish(worker, [item], "cancelled")
    await take()
    stage.clock.advance(LEASE_SECONDS + 1)
    await stage.engine.reap_attempts()
    worker = await stage.register()
    await take()
    await stage.engine.leave(worker)
    worker = await stage.register()
    await take()


async def test_nodes_that_claim_at_once_share_one_pool(database_url: str, stage: Stage):
    await stage.add_pool("gpu", 7)
    workflow_id = await stage.define(task("a", pool="gpu"), max_active_runs=0)
    await _fill(stage, workflow_id, 100)
    worker = await stage.register()
    async with open_node(database_url, stage.clock) as second, open_node(database_url, stage.clock) as third:
        for _ in range(10):
            given = await asyncio.gather(
                *(node.engine.claim(worker, limit=3, wait_seconds=0.3) for node in (stage.node, second, third) * 2)
            )
            items = [item for part in given for item in part]
            rows = await stage.runs_of(workflow_id)
            assert len(items) == 7
            assert len(rows) == 100
            await stage.finish(worker, items)
