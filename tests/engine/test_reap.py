"""reap: nothing is stranded when its owner is gone, and lost workers cost no retries of the user."""

from __future__ import annotations

import pytest

from rota.domain.errors import Unauthenticated
from rota.domain.work import AttemptKey, ErrorType
from rota.engine.reap import BATCH
from rota.engine.submit import RunRequest
from tests.engine.stage import LEASE_SECONDS, Stage, task


async def _lose(stage: Stage) -> None:
    """Claims for a worker that is never heard of again."""
    worker = await stage.register()
    assert await stage.claim(worker)
    stage.clock.advance(LEASE_SECONDS + 0.001)


async def test_a_lost_attempt_goes_back_to_its_place(stage: Stage):
    run_id = await stage.start(task("a", priority=3))
    before = (await stage.task_rows(run_id))["a"].claim_rank
    await _lose(stage)
    assert await stage.engine.reap_attempts() == 1
    assert await stage.engine.reap_attempts() == 0
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.claim_rank, row.failure_count, row.lost_count) == ("queued", before, 0, 1)
    (item,) = await stage.claim(await stage.register())
    assert (item.attempt, item.try_number) == (2, 1)


async def test_a_lease_that_has_not_run_out_is_left_alone(stage: Stage):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    for _ in range(5):
        stage.clock.advance(LEASE_SECONDS)
        assert await stage.engine.reap_attempts() == 0
        await stage.engine.renew(worker, [AttemptKey(item.task_run_id, item.attempt)])
    assert await stage.engine.reap_workers() == 0


async def test_too_many_losses_are_poison(stage: Stage):
    run_id = await stage.start(task("a", retry_count=10, max_deliveries=3), task("b", "a"))
    for _ in range(3):
        await _lose(stage)
        await stage.engine.reap_attempts()
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.error_type, row.lost_count, row.failure_count) == ("failed", ErrorType.POISON, 3, 0)
    assert "3 of at most 3" in row.error
    assert await stage.run_status(run_id) == "failed"
    await stage.engine.retry_run(run_id)
    assert await stage.work(await stage.register()) == ["a", "b"]


async def test_losses_do_not_use_up_the_retries(stage: Stage):
    run_id = await stage.start(task("a", retry_count=1, retry_delay_seconds=0, max_deliveries=5))
    await _lose(stage)
    await stage.engine.reap_attempts()
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    await _lose(stage)
    await stage.engine.reap_attempts()
    await stage.work(await stage.register())
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.attempt, row.failure_count, row.lost_count) == ("success", 4, 1, 2)


async def test_a_task_may_ask_not_to_be_started_twice(stage: Stage):
    run_id = await stage.start(task("a", on_lost="fail", retry_count=3))
    await _lose(stage)
    await stage.engine.reap_attempts()
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.error_type) == ("failed", ErrorType.WORKER_LOST)


async def test_a_cancel_whose_worker_is_lost_is_unconfirmed(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    stage.clock.advance(LEASE_SECONDS + 1)
    assert await stage.engine.reap_attempts() == 1
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.is_unconfirmed) == ("cancelled", True)
    assert await stage.run_status(run_id) == "cancelled"


async def test_more_than_one_batch(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id)] * (BATCH + 20))
    worker = await stage.register(concurrency=1000)
    for _ in range(6):
        await stage.claim(worker, 100)
    stage.clock.advance(LEASE_SECONDS + 1)
    assert [await stage.engine.reap_attempts() for _ in range(3)] == [BATCH, 20, 0]


async def test_a_silent_worker_is_given_up(stage: Stage):
    run_id = await stage.start(task("a"))
    silent, alive = await stage.register(), await stage.register()
    stage.clock.advance(LEASE_SECONDS / 2)
    await stage.engine.renew(alive, [])
    stage.clock.advance(LEASE_SECONDS / 2 + 1)
    assert await stage.engine.reap_workers() == 1
    for call in (stage.claim(silent), stage.engine.renew(silent, [])):
        with pytest.raises(Unauthenticated):
            await call
    assert await stage.work(alive) == ["a"]
    assert await stage.run_status(run_id) == "success"
    assert [move[1] for move in await stage.history(silent.worker_id)] == ["active", "inactive"]


async def test_reports_of_a_silent_worker_still_land_while_it_holds_the_attempt(stage: Stage):
    """Nobody else has the task run yet: throwing the result away would help no one."""
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    items = await stage.claim(worker)
    stage.clock.advance(LEASE_SECONDS + 1)
    await stage.engine.reap_workers()
    assert (await stage.finish(worker, items))[0].is_accepted
    assert await stage.run_status(run_id) == "success"


async def test_due_retries_come_in_batches_and_in_order(stage: Stage):
    workflow_id = await stage.define(task("a", retry_count=1, retry_delay_seconds=5), max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id)] * 30)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    assert await stage.engine.release_due() == 0
    stage.clock.advance(5)
    assert await stage.engine.release_due() == 30
    assert await stage.engine.release_due() == 0
    assert len(await stage.claim(worker)) == 30
