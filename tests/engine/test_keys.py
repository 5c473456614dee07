"""`concurrency_key`: of all task runs with the same key one runs at a time, and the next follows at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from sqlalchemy import select, update

from rota.domain.errors import InvalidInput
from rota.domain.work import Finished
from rota.engine.submit import RunRequest
from rota.store.tables import task_runs, tasks
from tests.engine.stage import LEASE_SECONDS, Stage, open_node, settle, task

KEY = "{{ params.customer }}"


async def _fill(stage: Stage, workflow_id: str, customers: str) -> list[str]:
    runs = await stage.engine.submit_many([RunRequest(workflow_id, params={"customer": name}) for name in customers])
    return [str(run.id) for run in runs]


async def _keys(stage: Stage, *states: str) -> Counter[str]:
    found = await stage.rows(select(task_runs.c.concurrency_key).where(task_runs.c.key_state.in_(states)))
    return Counter(row.concurrency_key for row in found)


async def test_one_runs_at_a_time_and_the_next_follows_in_order(stage: Stage):
    workflow_id = await stage.define(task("a", concurrency_key=KEY), max_active_runs=0)
    runs = []
    for customer in "xxxyz":
        runs += await _fill(stage, workflow_id, customer)
        stage.clock.advance(1)
    worker = await stage.register()
    assert await stage.claim(worker) == []
    await stage.engine.settle_keys()
    items = await stage.claim(worker)
    assert [item.run_id for item in items] == [runs[0], runs[3], runs[4]]
    assert await stage.claim(worker) == []
    for expected in runs[1:3]:
        await stage.finish(worker, items[:1])
        # Nobody has to look: the key was passed on by what ended.
        items = await stage.claim(worker)
        assert [item.run_id for item in items] == [expected]
    await stage.finish(worker, items)
    assert await stage.run_status(runs[2]) == "success"


async def test_a_key_counts_in_all_workflows_of_its_namespace(stage: Stage):
    for namespace in ("default", "other"):
        for name in ("first", "second"):
            workflow_id = await stage.define(task("a", concurrency_key="reports"), name=name, namespace=namespace)
            await stage.submit(workflow_id)
    await stage.engine.settle_keys()
    worker = await stage.register()
    items = await stage.claim(worker)
    assert [item.workflow for item in items] == ["first", "first"]
    await stage.finish(worker, items)
    assert [item.workflow for item in await stage.claim(worker)] == ["second", "second"]


async def test_the_urgent_one_is_next(stage: Stage):
    for name, priority in (("usual", 0), ("later", 0), ("urgent", 5)):
        await stage.submit(await stage.define(task("a", concurrency_key="k", priority=priority), name=name))
        await stage.engine.settle_keys()
    worker = await stage.register()
    items = await stage.claim(worker)
    await stage.finish(worker, items)
    assert [items[0].workflow, (await stage.claim(worker))[0].workflow] == ["usual", "urgent"]


async def test_the_key_is_rendered_from_what_came_before(stage: Stage):
    await stage.start(
        task("a", output="json"), task("b", "a", concurrency_key="shard-{{ tasks.a.output.shard }}-{{ ds }}")
    )
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    await stage.finish(worker, [item], output={"shard": 7})
    await stage.engine.settle_keys()
    assert list(await _keys(stage, "held")) == [f"shard-7-{stage.clock.now:%Y-%m-%d}"]
    assert await stage.work(worker) == ["b"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("{{ params.missing }}", "no attribute 'missing'"),
        ("{{ params.empty }}", "0 bytes"),
        ("{{ params.long }}", "300 bytes"),
        ("{{ 1 // 0 }}", "zero"),
    ],
)
async def test_a_key_without_a_value_fails_the_task(stage: Stage, key: str, reason: str):
    workflow_id = await stage.define(task("a", concurrency_key=key), task("b", "a"))
    run_id = await stage.submit(workflow_id, params={"empty": " ", "long": "é" * 150})
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert row.error.startswith(f"concurrency_key: {key}")
    assert reason in row.error
    assert await stage.run_status(run_id) == "failed"


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([task("a", concurrency_key="{{ x")], "tasks[0]"),
        ([task("a", concurrency_key="{{ tasks.b.output }}"), task("b")], "tasks[0]"),
        ([task("a", wait={"seconds": 1}, concurrency_key="k")], "tasks[0].concurrency_key"),
        ([task("a", concurrency_key="k" * 201)], "tasks[0].concurrency_key"),
    ],
)
async def test_a_key_that_cannot_be_is_refused_when_saved(stage: Stage, items: list, field: str):
    with pytest.raises(InvalidInput) as refusal:
        await stage.define(*items)
    assert [error.field for error in refusal.value.errors] == [field]


async def test_the_key_is_free_however_its_holder_leaves_it(stage: Stage):
    workflow_id = await stage.define(
        task("a", concurrency_key="k", retry_count=1, retry_delay_seconds=7), max_active_runs=0
    )
    runs = await _fill(stage, workflow_id, "abcdefg")
    worker = await stage.register()
    await stage.engine.settle_keys()

    async def take() -> list:
        items = await stage.claim(worker)
        assert len(items) == 1
        assert await stage.claim(worker) == []
        assert await _keys(stage, "held") == {"k": 1}
        return items

    await stage.finish(worker, await take(), "failed", error_type="exit_code")
    await stage.finish(worker, await take(), "success")
    await stage.finish(worker, await take(), "skipped")
    (item,) = await take()
    await stage.engine.cancel_run(item.run_id)
    await stage.finish(worker, [item], "cancelled")
    (item,) = await take()
    stage.clock.advance(LEASE_SECONDS + 1)
    await stage.engine.reap_attempts()
    assert await stage.engine.release_due() == 1
    await stage.engine.settle_keys()
    # The first one waits for its second try behind those that came before.
    worker = await stage.register()
    assert len(await take()) == 1
    await stage.engine.leave(worker)
    await stage.engine.settle_keys()
    await settle(stage)
    assert {await stage.run_status(run_id) for run_id in runs} == {"success", "cancelled"}
    assert await _keys(stage, "held", "new", "waiting") == {}


async def test_cancelling_who_holds_and_who_waits(stage: Stage):
    workflow_id = await stage.define(task("a", concurrency_key="k"), max_active_runs=0)
    runs = await _fill(stage, workflow_id, "abcd")
    await stage.engine.settle_keys()
    await stage.engine.cancel_run(runs[1])
    assert await _keys(stage, "held") == {"k": 1}
    await stage.engine.cancel_run(runs[0])
    worker = await stage.register()
    assert [item.run_id for item in await stage.claim(worker)] == [runs[2]]
    await stage.engine.cancel_run(runs[3])
    assert await stage.claim(worker) == []


async def test_a_run_with_the_same_key_twice(stage: Stage):
    run_id = await stage.start(*(task(name, concurrency_key="k") for name in "abc"), task("d", *"abc"))
    await stage.engine.settle_keys()
    assert len(await stage.claim(await stage.register())) == 1
    await stage.engine.cancel_run(run_id)
    assert await _keys(stage, "held") == {"k": 1}
    await settle(stage)
    assert await _keys(stage, "held") == {}


async def test_a_failed_task_that_is_retried_queues_for_its_key_again(stage: Stage):
    workflow_id = await stage.define(task("a", concurrency_key="k"), max_active_runs=0)
    runs = await _fill(stage, workflow_id, "ab")
    await stage.engine.settle_keys()
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed", error_type="exit_code")
    await stage.engine.retry_run(runs[0])
    await stage.engine.settle_keys()
    assert await _keys(stage, "held", "waiting") == {"k": 2}
    assert await stage.work(worker) == ["a", "a"]


async def test_a_key_with_a_condition_and_a_pool(stage: Stage):
    await stage.add_pool("gpu", 1)
    fields = {"concurrency_key": "{{ params.customer }}", "pool": "gpu", "when": "params.customer != 'n'"}
    workflow_id = await stage.define(task("a", **fields), max_active_runs=0)
    runs = await _fill(stage, workflow_id, "xyn")
    assert await stage.statuses(runs[2]) == {"a": "skipped"}
    await stage.engine.settle_keys()
    assert await _keys(stage, "held") == {"x": 1, "y": 1}
    worker = await stage.register()
    assert len(await stage.claim(worker)) == 1


async def test_a_key_that_was_left_behind_is_found(stage: Stage):
    workflow_id = await stage.define(task("a", concurrency_key="k"), max_active_runs=0)
    runs = await _fill(stage, workflow_id, "ab")
    await stage.engine.settle_keys()
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    # As if whoever ended the first one had not been able to pass the key on.
    of_run = [task_runs.c.run_id == run_id for run_id in runs]
    await stage.execute(update(task_runs).where(of_run[1]).values(key_state="waiting", lane_id=0))
    await stage.execute(update(task_runs).where(of_run[0]).values(key_state="held"))
    due_at, now = await stage.engine.find_next_due()
    assert due_at == now
    assert await stage.engine.settle_keys() == 1
    assert await stage.work(worker) == ["a"]


async def test_explain_names_who_holds_the_key(stage: Stage):
    workflow_id = await stage.define(task("a", concurrency_key=KEY), max_active_runs=0)
    runs = await _fill(stage, workflow_id, "xx")
    waiting = await stage.task_run_id(runs[1], "a")
    explanation = await stage.engine.explain_task_run(waiting)
    assert (explanation.code, explanation.holders) == ("concurrency_key", ())
    await stage.engine.settle_keys()
    explanation = await stage.engine.explain_task_run(waiting)
    assert explanation.code == "concurrency_key"
    assert [holder.id for holder in explanation.holders] == [await stage.task_run_id(runs[0], "a")]
    assert "'x'" in explanation.sentence


async def test_many_nodes_and_few_keys(database_url: str, stage: Stage):
    """Claims, ends, arrivals and cancels race on several nodes; no key is ever held twice, none is forgotten."""
    fields = {"concurrency_key": KEY, "retry_count": 1, "retry_delay_seconds": 0}
    workflow_id = await stage.define(task("a", **fields), task("b", "a", **fields), max_active_runs=0)
    running: Counter[str] = Counter()
    ended = 0

    async def work(engine) -> None:
        nonlocal ended
        worker = await stage.register()
        while ended < 120:
            await engine.settle_keys()
            items = await engine.claim(worker, limit=3)
            keys = {item.task_run_id: await _key_of(stage, item.task_run_id) for item in items}
            for key in keys.values():
                running[key] += 1
                assert running[key] == 1
            for item in items:
                running[keys[item.task_run_id]] -= 1
                status = "failed" if item.attempt == 1 and ended % 5 == 0 else "success"
                told = Finished(item.task_run_id, item.attempt, status, error_type="exit_code")
                assert (await engine.report(worker, [told])).results[0].is_accepted
                ended += status == "success"

    async def arrive(engine) -> None:
        for _ in range(10):
            await engine.submit_many([RunRequest(workflow_id, params={"customer": name}) for name in "xxyyzw"])

    async with open_node(database_url, stage.clock) as second, open_node(database_url, stage.clock) as third:
        engines = [node.engine for node in (stage.node, second, third)]
        async with asyncio.timeout(60):
            await asyncio.gather(arrive(engines[1]), *(work(engine) for engine in engines))
    await settle(stage)
    assert await _keys(stage, "held", "new", "waiting") == {}


async def _key_of(stage: Stage, task_run_id: str) -> str:
    (row,) = await stage.rows(select(task_runs.c.concurrency_key).where(task_runs.c.id == task_run_id))
    return str(row.concurrency_key)


async def test_lanes_do_not_grow_with_the_keys(stage: Stage):
    workflow_id = await stage.define(task("a", concurrency_key="{{ params.customer }}"), max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id, params={"customer": str(n)}) for n in range(1500)])
    while await stage.engine.settle_keys():
        pass
    in_lanes = await stage.rows(select(task_runs.c.lane_id).distinct())
    assert [row.lane_id for row in in_lanes] == [row.lane_id for row in await stage.rows(select(tasks.c.lane_id))]
    assert len(await stage.claim(await stage.register(), 2000)) == 1500
