"""cancel: what waits stops at once, what runs is asked to stop, clean-up still happens."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import make_uuid7
from rota.domain.work import AttemptKey
from rota.store.tables import workflows
from tests.engine.stage import Stage, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def test_what_waits_stops_and_what_runs_is_asked(stage: Stage):
    run_id = await stage.start(task("a"), task("b", priority=-1), task("c", "a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker, 1)
    report = await stage.engine.cancel_run(run_id, "wrong\0day")
    assert (report.stopped, report.asked) == (2, 1)
    assert await stage.statuses(run_id) == {"a": "running", "b": "cancelled", "c": "cancelled"}
    run = await stage.run_row(run_id)
    assert (run.status, run.remaining, run.cancel_reason) == ("running", 1, "wrong\ufffdday")
    reply = await stage.engine.renew(worker, [AttemptKey(item.task_run_id, 1)])
    assert reply.cancel == (AttemptKey(item.task_run_id, 1),)
    await stage.finish(worker, [item], "cancelled", is_unconfirmed=False)
    assert await stage.run_status(run_id) == "cancelled"
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.error_type, row.is_unconfirmed) == ("cancelled", "cancelled", False)


async def test_cancelling_twice_is_fine(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    items = await stage.claim(worker)
    assert (await stage.engine.cancel_run(run_id, "first")).asked == 1
    assert (await stage.engine.cancel_run(run_id, "second")).asked == 1
    await stage.finish(worker, items, "cancelled")
    assert await stage.engine.cancel_run(run_id) == await stage.engine.cancel_run(run_id)
    assert (await stage.run_row(run_id)).cancel_reason == "first"


async def test_a_run_that_has_ended_cannot_be_cancelled(stage: Stage):
    run_id = await stage.start(task("a"))
    await stage.work(await stage.register())
    with pytest.raises(Conflict, match="success"):
        await stage.engine.cancel_run(run_id)
    with pytest.raises(Conflict, match="success"):
        await stage.engine.cancel_task_run(await stage.task_run_id(run_id, "a"))
    for verb in (stage.engine.cancel_run, stage.engine.cancel_task_run):
        with pytest.raises(NotFound):
            await verb(UNKNOWN)


async def test_a_success_that_comes_first_stays_a_success(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"))
    worker = await stage.register()
    items = await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    await stage.finish(worker, items, "success")
    assert await stage.statuses(run_id) == {"a": "success", "b": "cancelled"}
    assert await stage.run_status(run_id) == "cancelled"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
async def test_no_retry_after_a_cancel(stage: Stage, status: str):
    run_id = await stage.start(task("a", retry_count=5))
    worker = await stage.register()
    items = await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    await stage.finish(worker, items, status)
    assert await stage.run_status(run_id) == "cancelled"


async def test_a_waiting_retry_is_cancelled(stage: Stage):
    run_id = await stage.start(task("a", retry_count=5))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    assert (await stage.engine.cancel_run(run_id)).stopped == 1
    stage.clock.advance(3600)
    assert await stage.engine.release_due() == 0
    assert await stage.run_status(run_id) == "cancelled"


async def test_clean_up_runs_after_a_cancel(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("clean", "a", "b", teardown=True))
    worker = await stage.register()
    items = await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    assert (await stage.statuses(run_id))["clean"] == "pending"
    await stage.finish(worker, items, "cancelled")
    assert await stage.work(worker) == ["clean"]
    assert await stage.run_status(run_id) == "cancelled"


async def test_running_clean_up_is_left_alone(stage: Stage):
    run_id = await stage.start(task("a"), task("clean", "a", teardown=True))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    items = await stage.claim(worker)
    assert (await stage.engine.cancel_run(run_id)).asked == 0
    await stage.finish(worker, items)
    assert await stage.run_status(run_id) == "failed"


async def test_a_run_before_its_turn(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", "a"), max_active_runs=1)
    first, second, third = [await stage.submit(workflow_id) for _ in range(3)]
    assert (await stage.engine.cancel_run(second)).stopped == 2
    assert [await stage.run_status(run) for run in (first, second, third)] == ["running", "cancelled", "pending"]
    assert [move[:2] for move in await stage.history(second)] == [
        (None, "pending"),
        ("pending", "running"),
        ("running", "cancelled"),
    ]
    await stage.engine.cancel_run(first)
    assert await stage.run_status(third) == "running"


async def test_clean_up_of_a_run_before_its_turn(stage: Stage):
    workflow_id = await stage.define(
        task("a"), task("clean", "a", teardown=True), task("alone", teardown=True), max_active_runs=1
    )
    first, second = [await stage.submit(workflow_id) for _ in range(2)]
    await stage.engine.cancel_run(second)
    assert await stage.statuses(second) == {"a": "cancelled", "clean": "queued", "alone": "queued"}
    await stage.engine.cancel_run(first)
    await stage.work(await stage.register())
    assert [await stage.run_status(run) for run in (first, second)] == ["cancelled", "cancelled"]


async def test_one_task_run_of_several(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("after", "a"), task("handle", "a", trigger_rule="one_failed"))
    assert (await stage.engine.cancel_task_run(await stage.task_run_id(run_id, "a"), "not today")).stopped == 1
    assert await stage.statuses(run_id) == {
        "a": "cancelled",
        "b": "queued",
        "after": "upstream_failed",
        "handle": "queued",
    }
    await stage.work(await stage.register())
    assert await stage.run_status(run_id) == "success"


async def test_a_running_task_run(stage: Stage):
    run_id = await stage.start(task("a", retry_count=3), task("b", "a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    assert (await stage.engine.cancel_task_run(item.task_run_id)).asked == 1
    await stage.finish(worker, [item], "cancelled")
    assert (await stage.engine.cancel_task_run(item.task_run_id)).asked == 0
    assert await stage.statuses(run_id) == {"a": "cancelled", "b": "upstream_failed"}
    assert await stage.run_status(run_id) == "failed"


async def test_a_task_run_of_a_run_before_its_turn(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", "a", trigger_rule="all_done"), max_active_runs=1)
    _first, second = [await stage.submit(workflow_id) for _ in range(2)]
    with pytest.raises(Conflict, match="run instead"):
        await stage.engine.cancel_task_run(await stage.task_run_id(second, "a"))
    assert await stage.statuses(second) == {"a": "pending", "b": "pending"}


async def test_a_cancel_wakes_up_the_workers(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    await stage.claim(worker)
    waiting = asyncio.create_task(stage.engine.wait_for_orders(worker, wait_seconds=60))
    await asyncio.wait([waiting], timeout=0.02)
    async with asyncio.timeout(5):
        await stage.engine.cancel_run(run_id)
        assert await waiting
    assert not await stage.engine.wait_for_orders(worker, wait_seconds=0.01)


async def test_a_run_over_its_time(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), run_timeout_seconds=60)
    worker = await stage.register()
    items = await stage.claim(worker)
    stage.clock.advance(59)
    assert await stage.engine.reap_runs() == 0
    stage.clock.advance(2)
    assert await stage.engine.reap_runs() == 1
    assert await stage.engine.reap_runs() == 0
    assert "run_timeout_seconds" in (await stage.run_row(run_id)).cancel_reason
    await stage.finish(worker, items, "cancelled")
    assert await stage.run_status(run_id) == "cancelled"


async def test_a_run_whose_turn_was_missed_is_started(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=1)
    _first, second = [await stage.submit(workflow_id) for _ in range(2)]
    await stage.execute(workflows.update().values(max_active_runs=2))
    assert await stage.engine.reap_runs() == 1
    assert await stage.run_status(second) == "running"
    assert await stage.engine.reap_runs() == 0
