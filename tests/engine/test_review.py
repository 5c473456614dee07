"""review: pauses after failures in a row, of a schedule and of a workflow, once and durably."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.stage import Stage, open_node, task


async def _end(stage: Stage, *statuses: str) -> None:
    """One tick for each status, whose run ends so."""
    worker = await stage.register()
    for status in statuses:
        stage.clock.advance(60)
        await stage.engine.review()
        await stage.engine.fire()
        if status == "cancelled":
            for item in await stage.claim(worker):
                await stage.engine.cancel_run(item.run_id)
                await stage.finish(worker, [item], "cancelled")
        else:
            await stage.finish(worker, await stage.claim(worker), status)
    await stage.engine.review()


async def _schedule(stage: Stage, workflow_id: str) -> Any:
    (row,) = await stage.schedule_rows(workflow_id)
    return row


@pytest.mark.parametrize(
    ("ends", "is_paused"),
    [
        (["failed", "failed"], False),
        (["failed", "failed", "failed"], True),
        (["failed", "failed", "success", "failed", "failed"], False),
        (["success", "failed", "failed", "failed"], True),
        (["failed", "failed", "cancelled", "failed"], True),
    ],
)
async def test_a_schedule_pauses_after_failures_in_a_row(stage: Stage, ends: list[str], is_paused: bool):
    rule = {"schedule_cron": "* * * * *", "pause_after_failures": 3}
    workflow_id = await stage.define(task("a"), schedules=[rule], max_active_runs=0)
    await _end(stage, *ends)
    row = await _schedule(stage, workflow_id)
    assert (row.is_paused, row.is_active) == (is_paused, not is_paused)
    stage.clock.advance(60)
    assert (await stage.engine.fire()).runs == int(not is_paused)
    if is_paused:
        assert row.paused_reason == "its last 3 runs failed"
        assert (await stage.history(row.id))[-1][1:] == ("paused", {"reason": "its last 3 runs failed"})


async def test_a_resumed_schedule_counts_anew(stage: Stage):
    rule = {"schedule_cron": "* * * * *", "pause_after_failures": 2}
    workflow_id = await stage.define(task("a"), schedules=[rule], max_active_runs=0)
    await _end(stage, "failed", "failed")
    row = await _schedule(stage, workflow_id)
    await stage.engine.set_schedule_active(row.id, is_active=True)
    await _end(stage, "failed")
    assert (await _schedule(stage, workflow_id)).is_active
    await _end(stage, "failed")
    assert not (await _schedule(stage, workflow_id)).is_active


async def test_a_workflow_pauses_with_all_its_schedules(stage: Stage):
    rules = [{"schedule_cron": "* * * * *"}, {"schedule_cron": "0 0 * * *"}]
    workflow_id = await stage.define(task("a"), schedules=rules, pause_after_failures=2, max_active_runs=0)
    await _end(stage, "failed", "success", "failed", "failed")
    assert not (await stage.find()).is_active
    assert [row.is_active for row in await stage.schedule_rows(workflow_id)] == [False, False]
    await stage.engine.set_active(await stage.find(), is_active=True)
    await _end(stage, "failed")
    assert (await stage.find()).is_active


async def test_manual_runs_count_for_the_workflow(stage: Stage):
    workflow_id = await stage.define(task("a"), pause_after_failures=2)
    worker = await stage.register()
    for _ in range(2):
        await stage.submit(workflow_id)
        await stage.finish(worker, await stage.claim(worker), "failed")
    assert await stage.engine.review() == 2
    assert not (await stage.find()).is_active


async def test_a_schedule_that_was_paused_itself_stays_so(stage: Stage):
    rules = [{"schedule_cron": "* * * * *"}, {"schedule_cron": "0 0 * * *"}]
    workflow_id = await stage.define(task("a"), schedules=rules)
    first, second = await stage.schedule_rows(workflow_id)
    await stage.engine.set_schedule_active(first.id, is_active=False, reason="too loud")
    await stage.engine.set_active(await stage.find(), is_active=False)
    await stage.engine.set_active(await stage.find(), is_active=True)
    assert [row.is_active for row in await stage.schedule_rows(workflow_id)] == [False, True]
    await stage.define(task("b"), schedules=rules)
    assert [row.is_active for row in await stage.schedule_rows(workflow_id)] == [False, True]
    assert [new for _old, new, _details in await stage.history(second.id)] == ["paused", "resumed"]


async def test_a_run_that_is_tried_again_is_looked_at_again(stage: Stage):
    workflow_id = await stage.define(task("a"), pause_after_failures=5)
    run_id = await stage.submit(workflow_id)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    assert [await stage.engine.review(), await stage.engine.review()] == [1, 0]
    await stage.engine.retry_run(run_id)
    assert await stage.engine.review() == 0
    await stage.finish(worker, await stage.claim(worker), "failed")
    assert [await stage.engine.review(), await stage.engine.review()] == [1, 0]


async def test_an_unwatched_run_is_not_looked_at(stage: Stage):
    await stage.start(task("a"))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    assert await stage.engine.review() == 0


async def test_nodes_review_while_others_fire(database_url: str, stage: Stage):
    rule = {"schedule_cron": "* * * * *", "pause_after_failures": 4, "overlap": "skip"}
    ids = [await stage.define(task("a"), name=f"flow{n}", schedules=[rule], max_active_runs=0) for n in range(10)]
    worker = await stage.register()
    async with open_node(database_url, stage.clock) as other:
        for _ in range(15):
            stage.clock.advance(20)
            await stage.engine.renew(worker, [])
            stage.clock.advance(40)
            items = await stage.claim(worker)
            await asyncio.gather(
                *(node.engine.fire() for node in (stage.node, other)),
                *(node.engine.review() for node in (stage.node, other) * 2),
                *(stage.finish(worker, [item], "failed") for item in items),
            )
            await stage.engine.review()
            await stage.engine.fire()
        await stage.finish(worker, await stage.claim(worker), "failed")
        await stage.engine.review()
    for workflow_id in ids:
        # The tick after the fourth may be fired before the fourth is reviewed, and none after that.
        states = [row.status for row in await stage.runs_of(workflow_id)]
        assert states in (["failed"] * 4, ["failed"] * 5)
        assert (await _schedule(stage, workflow_id)).is_paused
