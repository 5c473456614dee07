"""retry by request: a failed run goes on from what failed."""

from __future__ import annotations

import pytest

from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import make_uuid7
from tests.engine.stage import Stage, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def test_a_run_goes_on_from_what_failed(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("c", "b"), task("d", "a"))
    worker = await stage.register()
    await stage.work(worker, {"b": "failed"})
    assert await stage.run_status(run_id) == "failed"
    stage.clock.advance(5)
    report = await stage.engine.retry_run(run_id)
    assert (report.queued, report.waiting) == (1, 1)
    assert await stage.statuses(run_id) == {"a": "success", "b": "queued", "c": "pending", "d": "success"}
    run = await stage.run_row(run_id)
    assert (run.status, run.remaining, run.failed_count, run.finished_at) == ("running", 2, 0, None)
    assert await stage.work(worker) == ["b", "c"]
    assert await stage.run_status(run_id) == "success"
    moves = [move[:2] for move in await stage.history(await stage.task_run_id(run_id, "b"))]
    assert moves[-4:] == [("running", "failed"), ("failed", "queued"), ("queued", "running"), ("running", "success")]


async def test_the_whole_budget_of_tries_is_there_again(stage: Stage):
    run_id = await stage.start(task("a", retry_count=1, retry_delay_seconds=0))
    worker = await stage.register()
    assert len(await stage.work(worker, {"a": "failed"})) == 2
    await stage.engine.retry_run(run_id)
    assert len(await stage.work(worker, {"a": "failed"})) == 2
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.attempt, row.failure_count) == ("failed", 4, 2)


async def test_only_those_named_are_tried_again(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("c", "a"), task("d", "b"))
    worker = await stage.register()
    await stage.work(worker, {"a": "failed", "b": "failed"})
    report = await stage.engine.retry_task_run(await stage.task_run_id(run_id, "a"))
    assert (report.queued, report.waiting) == (1, 1)
    assert await stage.work(worker) == ["a", "c"]
    assert await stage.statuses(run_id) == {"a": "success", "b": "failed", "c": "success", "d": "upstream_failed"}
    assert await stage.run_status(run_id) == "failed"


async def test_what_has_another_reason_to_give_up_gives_up_again(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("join", "a", "b"), task("after", "join"))
    worker = await stage.register()
    await stage.work(worker, {"a": "failed", "b": "failed"})
    await stage.engine.retry_task_run(await stage.task_run_id(run_id, "a"))
    assert await stage.statuses(run_id) == {
        "a": "queued",
        "b": "failed",
        "join": "upstream_failed",
        "after": "upstream_failed",
    }
    await stage.work(worker)
    assert await stage.run_status(run_id) == "failed"
    await stage.engine.retry_run(run_id)
    assert await stage.work(worker) == ["b", "join", "after"]
    assert await stage.run_status(run_id) == "success"


async def test_a_retry_in_a_running_run_is_counted_again_where_nothing_gave_up(stage: Stage):
    """The join has counted the failure already, and must not start while its other upstream runs."""
    run_id = await stage.start(task("a"), task("b"), task("join", "a", "b", trigger_rule="all_done"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["a"]], "failed")
    await stage.engine.retry_run(run_id)
    (again,) = await stage.claim(worker)
    await stage.finish(worker, [again])
    assert await stage.statuses(run_id) == {"a": "success", "b": "running", "join": "pending"}
    await stage.finish(worker, [items["b"]])
    assert (await stage.statuses(run_id))["join"] == "queued"


async def test_final_states_stay(stage: Stage):
    run_id = await stage.start(
        task("a"), task("repair", "a", trigger_rule="one_failed"), task("never", "a", trigger_rule="all_failed")
    )
    worker = await stage.register()
    await stage.work(worker, {"a": "failed"})
    assert await stage.run_status(run_id) == "success"
    with pytest.raises(Conflict):
        await stage.engine.retry_run(run_id)


async def test_a_retried_run_has_its_whole_time_again(stage: Stage):
    run_id = await stage.start(task("a"), run_timeout_seconds=60)
    worker = await stage.register()
    await stage.work(worker, {"a": "failed"})
    stage.clock.advance(3600)
    await stage.engine.retry_run(run_id)
    assert await stage.engine.reap_runs() == 0
    stage.clock.advance(61)
    assert await stage.engine.reap_runs() == 1
    assert await stage.run_status(run_id) == "cancelled"


async def test_a_failed_run_in_which_something_was_cancelled(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("c", "a", "b"))
    worker = await stage.register()
    await stage.engine.cancel_task_run(await stage.task_run_id(run_id, "a"))
    await stage.work(worker, {"b": "failed"})
    assert await stage.run_status(run_id) == "failed"
    await stage.engine.retry_run(run_id)
    assert await stage.work(worker) == ["b"]
    assert await stage.statuses(run_id) == {"a": "cancelled", "b": "success", "c": "upstream_failed"}
    assert await stage.run_status(run_id) == "failed"


async def test_a_run_that_was_asked_to_cancel_too_late_can_be_retried(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    items = await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    with pytest.raises(Conflict):
        await stage.engine.retry_run(run_id)
    await stage.finish(worker, items, "success")
    assert await stage.run_status(run_id) == "success"
    with pytest.raises(Conflict):
        await stage.engine.retry_run(run_id)


async def test_there_must_be_something_to_retry(stage: Stage):
    run_id = await stage.start(task("a"), max_active_runs=1)
    waiting = await stage.submit((await stage.find()).id)
    for what in (run_id, waiting):
        with pytest.raises(Conflict):
            await stage.engine.retry_run(what)
        with pytest.raises(Conflict):
            await stage.engine.retry_task_run(await stage.task_run_id(what, "a"))
    for verb in (stage.engine.retry_run, stage.engine.retry_task_run):
        with pytest.raises(NotFound):
            await verb(UNKNOWN)
