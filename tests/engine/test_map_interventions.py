"""Mapped tasks that people interfere with: marked, terminated with their run, repeated in a new one."""

from __future__ import annotations

import pytest

from rota.domain.errors import Conflict
from rota.engine import expand
from rota.engine.mark import Mark, MarkStatus
from rota.engine.rerun import Rerun
from rota.engine.terminate import terminate_run
from tests.engine.stage import Stage, task

EACH = {"map_over": [1, 2, 3, 4], "map_concurrency": 2, "output": "json"}


@pytest.mark.parametrize("status", ["success", "failed", "skipped"])
async def test_marking_the_task_ends_its_items(stage: Stage, monkeypatch: pytest.MonkeyPatch, status: MarkStatus):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 3)
    run_id = await stage.start(task("each", **EACH), task("after", "each"))
    worker = await stage.register()
    items = await stage.claim(worker, 1)
    await stage.engine.mark_task_run(await stage.task_run_id(run_id, "each"), Mark(status))
    assert {row.status for row in await stage.item_rows(run_id, "each")} == {"cancelled"}
    after = {"success": "queued", "failed": "upstream_failed", "skipped": "skipped"}[status]
    assert await stage.statuses(run_id) == {"each": status, "after": after}
    (result,) = await stage.finish(worker, items)
    assert result.code == "late"
    assert await stage.engine.expand_maps() == 1
    assert await stage.engine.expand_maps() == 0
    await stage.work(worker)
    assert await stage.run_status(run_id) == ("failed" if status == "failed" else "success")


async def test_marking_an_item_counts_as_its_end(stage: Stage):
    run_id = await stage.start(task("each", **EACH))
    worker = await stage.register()
    held = await stage.claim(worker)
    rows = await stage.item_rows(run_id, "each")
    marks: tuple[MarkStatus, ...] = ("success", "skipped", "success", "skipped")
    for row, status in zip(rows, marks, strict=True):
        await stage.engine.mark_task_run(row.id, Mark(status))
    assert await stage.statuses(run_id) == {"each": "success"}
    assert (await stage.task_rows(run_id))["each"].output == [None] * 4
    assert {result.code for result in await stage.finish(worker, held)} == {"late"}
    assert await stage.run_status(run_id) == "success"


async def test_an_item_that_has_failed_cannot_be_marked_but_its_task_can(stage: Stage):
    run_id = await stage.start(task("each", **EACH), task("after", "each"))
    worker = await stage.register()
    await stage.work(worker, {"each": "failed"})
    (first, *_rest) = await stage.item_rows(run_id, "each")
    with pytest.raises(Conflict, match="mark its mapped task instead"):
        await stage.engine.mark_task_run(first.id, Mark("success"))
    await stage.engine.mark_task_run(await stage.task_run_id(run_id, "each"), Mark("success"))
    assert await stage.work(worker) == ["after"]
    assert await stage.run_status(run_id) == "success"


async def test_terminating_a_run_ends_tasks_and_items_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 3)
    run_id = await stage.start(task("each", **EACH), task("after", "each"))
    await stage.claim(await stage.register(), 1)
    core = stage.engine._core
    await stage.database.transact(lambda tx: terminate_run(core, tx, run_id, "replaced"))
    assert await stage.statuses(run_id) == {"each": "cancelled", "after": "cancelled"}
    assert {row.status for row in await stage.item_rows(run_id, "each")} == {"cancelled"}
    assert await stage.run_status(run_id) == "cancelled"
    assert await stage.engine.expand_maps() == 1
    assert await stage.engine.expand_maps() == 0


async def test_items_that_wait_too_long_for_a_worker_fail(stage: Stage):
    run_id = await stage.start(task("each", **EACH, queue_timeout_seconds=5))
    worker = await stage.register()
    (held, *_rest) = await stage.claim(worker, 1)
    for _ in range(3):
        stage.clock.advance(6)
        assert await stage.engine.expire_waiting() == 1
    await stage.finish(worker, [held])
    states = [row.status for row in await stage.item_rows(run_id, "each")]
    assert states == ["success", "failed", "failed", "failed"]
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error) == ("failed", "of its 4 items 3 failed")


async def test_items_with_one_key_run_one_at_a_time(stage: Stage):
    items = {"map_over": ["a", "b", "a"], "concurrency_key": "{{ item }}"}
    run_id = await stage.start(task("each", **items))
    worker = await stage.register()
    order: list[list[int]] = []
    await stage.engine.settle_keys()
    while held := await stage.claim(worker):
        order.append(sorted(item.map_index for item in held))
        await stage.finish(worker, held)
        await stage.engine.settle_keys()
    assert order == [[0, 1], [2]]
    assert await stage.run_status(run_id) == "success"


async def test_each_item_may_start_a_run_of_another_workflow(stage: Stage):
    await stage.define(task("work", output="json"), name="called")
    call = {"workflow": "called", "params": {"name": "{{ item }}"}, "map_over": ["a", "b", "c"], "map_concurrency": 2}
    run_id = await stage.start(task("call", **call))
    await stage.follow()
    assert [row.status for row in await stage.item_rows(run_id, "call")] == ["running", "running", "pending"]
    worker = await stage.register()
    while items := await stage.claim(worker):
        await stage.finish(worker, items, output=1)
        await stage.follow()
    assert (await stage.task_rows(run_id))["call"].output == [{"work": 1}] * 3
    assert await stage.run_status(run_id) == "success"


async def test_cancelling_the_task_cancels_the_runs_that_its_items_started(stage: Stage):
    called = await stage.define(task("work"), name="called")
    run_id = await stage.start(task("call", workflow="called", map_over=["a", "b"]))
    await stage.follow()
    await stage.engine.cancel_task_run(await stage.task_run_id(run_id, "call"))
    await stage.follow()
    assert {row.status for row in await stage.runs_of(called)} == {"cancelled"}
    assert await stage.statuses(run_id) == {"call": "cancelled"}


async def test_a_new_run_takes_over_the_list_of_results(stage: Stage):
    run_id = await stage.start(task("each", **EACH), task("after", "each", command="echo {{ tasks.each.output }}"))
    worker = await stage.register()
    while items := await stage.claim(worker):
        status = "failed" if items[0].task == "after" else "success"
        await stage.finish(worker, items, status, output=7)
    report = await stage.engine.rerun_run(run_id, Rerun("unfinished"))
    assert report.is_new
    (after,) = await stage.claim(worker)
    assert after.spec["command"] == "echo '[7,7,7,7]'"
    await stage.finish(worker, [after])
    assert await stage.run_status(report.run_id) == "success"


async def test_a_named_mapped_task_is_tried_again_in_its_own_run(stage: Stage):
    run_id = await stage.start(task("each", **EACH))
    worker = await stage.register()
    while items := await stage.claim(worker):
        for item in items:
            await stage.finish(worker, [item], "success" if item.map_index else "failed")
    report = await stage.engine.retry_or_rerun(run_id, Rerun("tasks", ("each",)))
    assert (report.run_id, report.is_new) == (run_id, False)
    assert await stage.work(worker) == ["each"]
    assert await stage.run_status(run_id) == "success"
