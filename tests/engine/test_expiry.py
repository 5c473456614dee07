"""`queue_timeout_seconds`: what waits for a worker for too long fails, and says why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.engine.submit import RunRequest
from tests.engine.stage import LEASE_SECONDS, Stage, settle, task


async def _expire(stage: Stage, seconds: float) -> int:
    stage.clock.advance(seconds)
    return await stage.engine.expire_waiting()


async def test_what_waits_too_long_fails_with_its_reason(stage: Stage):
    run_id = await stage.start(
        task("a", queue_timeout_seconds=60, retry_count=3), task("b", "a"), task("c", "a", trigger_rule="all_done")
    )
    due_at, now = await stage.engine.find_next_due()
    assert due_at is not None
    assert due_at - now == timedelta(seconds=60)
    assert await _expire(stage, 59) == 0
    assert await _expire(stage, 1) == 1
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.error_type, row.attempt, row.due_at) == ("failed", "timeout", 0, None)
    assert row.error == "no worker took it within its queue_timeout_seconds (60)"
    assert (await stage.history(row.id))[-1] == ("queued", "failed", {"error_type": "timeout", "reason": row.error})
    assert await stage.work(await stage.register()) == ["c"]
    assert (await stage.statuses(run_id))["b"] == "upstream_failed"
    assert (await stage.engine.find_next_due())[0] is None


async def test_what_has_a_worker_in_time_is_left_alone(stage: Stage):
    run_id = await stage.start(task("a", queue_timeout_seconds=60), task("b", "a", queue_timeout_seconds=5))
    worker = await stage.register()
    items = await stage.claim(worker)
    assert await _expire(stage, 61) == 0
    await stage.finish(worker, items)
    assert await _expire(stage, 4) == 0
    assert await stage.work(worker) == ["b"]
    assert await stage.run_status(run_id) == "success"


async def test_the_time_counts_anew_for_each_try(stage: Stage):
    fields: dict[str, Any] = {"queue_timeout_seconds": 60, "retry_count": 2}
    run_id = await stage.start(
        task("at_once", **fields, retry_delay_seconds=0), task("later", **fields, retry_delay_seconds=10)
    )
    worker = await stage.register()
    stage.clock.advance(50)
    await stage.finish(worker, await stage.claim(worker), "failed", error_type="exit_code")
    assert await _expire(stage, 11) == 0
    assert await stage.engine.release_due() == 1
    assert await _expire(stage, 48) == 0
    assert await _expire(stage, 1) == 1
    assert await stage.statuses(run_id) == {"at_once": "failed", "later": "queued"}
    assert await _expire(stage, 11) == 1
    assert await stage.run_status(run_id) == "failed"
    # What failed in the queue can be tried again, like any failure.
    await stage.engine.retry_run(run_id)
    await settle(stage)
    assert await stage.run_status(run_id) == "success"


async def test_work_that_lost_its_worker_has_its_time_again(stage: Stage):
    run_id = await stage.start(task("a", queue_timeout_seconds=60))
    assert await stage.claim(await stage.register())
    stage.clock.advance(LEASE_SECONDS + 1)
    assert await stage.engine.reap_attempts() == 1
    assert await _expire(stage, 59) == 0
    assert await _expire(stage, 1) == 1
    assert await stage.run_status(run_id) == "failed"


async def test_waiting_for_a_key_counts_and_the_key_goes_to_the_next(stage: Stage):
    workflow_id = await stage.define(
        task("a", concurrency_key="k", queue_timeout_seconds=60), name="short", max_active_runs=0
    )
    patient = await stage.define(task("a", concurrency_key="k"), name="patient")
    runs = [run.id for run in await stage.engine.submit_many([RunRequest(workflow_id)] * 2)]
    await stage.engine.settle_keys()
    last = await stage.submit(patient)
    await stage.engine.settle_keys()
    assert await _expire(stage, 60) == 2
    assert {await stage.run_status(str(run_id)) for run_id in runs} == {"failed"}
    assert [item.run_id for item in await stage.claim(await stage.register())] == [last]


async def test_clean_up_still_runs(stage: Stage):
    run_id = await stage.start(task("a", queue_timeout_seconds=1), task("end", "a", teardown=True))
    assert await _expire(stage, 1) == 1
    assert await stage.work(await stage.register()) == ["end"]
    assert await stage.run_status(run_id) == "failed"
