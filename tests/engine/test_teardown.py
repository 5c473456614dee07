"""Teardown tasks: they run whatever has happened, and what becomes of them says nothing about the run."""

from __future__ import annotations

import pytest

from tests.engine.stage import LEASE_SECONDS, Stage, settle, task

ITEMS = (task("set-up"), task("work", "set-up"), task("clean", "set-up", "work", teardown=True))


@pytest.mark.parametrize("clean", ["success", "failed"])
@pytest.mark.parametrize(
    ("script", "work", "run"),
    [
        ({}, "success", "success"),
        ({"work": "failed"}, "failed", "failed"),
        ({"work": "skipped"}, "skipped", "success"),
        ({"set-up": "failed"}, "upstream_failed", "failed"),
    ],
)
async def test_it_runs_whatever_has_happened(stage: Stage, script: dict[str, str], work: str, run: str, clean: str):
    run_id = await stage.start(*ITEMS)
    started = await stage.work(await stage.register(), {**script, "clean": clean})
    assert started[-1] == "clean"
    states = await stage.statuses(run_id)
    assert (states["work"], states["clean"]) == (work, clean)
    assert await stage.run_status(run_id) == run
    assert (await stage.run_row(run_id)).failed_count == int(run == "failed")


@pytest.mark.parametrize("clean", ["success", "failed"])
@pytest.mark.parametrize("claimed", [0, 1])
async def test_it_runs_after_a_cancel(stage: Stage, claimed: int, clean: str):
    run_id = await stage.start(*ITEMS)
    worker = await stage.register()
    items = await stage.claim(worker, claimed) if claimed else []
    await stage.engine.cancel_run(run_id)
    await stage.finish(worker, items, "cancelled")
    assert await stage.work(worker, {"clean": clean}) == ["clean"]
    assert await stage.statuses(run_id) == {"set-up": "cancelled", "work": "cancelled", "clean": clean}
    assert await stage.run_status(run_id) == "cancelled"


async def test_it_runs_after_a_cancel_before_the_runs_turn(stage: Stage):
    workflow_id = await stage.define(*ITEMS, task("sweep", teardown=True), max_active_runs=1)
    first = await stage.submit(workflow_id)
    waiting = await stage.submit(workflow_id)
    await stage.engine.cancel_run(waiting)
    states = await stage.statuses(waiting)
    assert (states["clean"], states["sweep"], await stage.run_status(waiting)) == ("queued", "queued", "running")
    await settle(stage)
    states = await stage.statuses(waiting)
    assert (states["clean"], states["sweep"]) == ("success", "success")
    assert await stage.run_status(waiting) == "cancelled"
    assert await stage.run_status(first) == "success"


async def test_a_cancel_leaves_it_running_and_its_own_cancel_does_not(stage: Stage):
    run_id = await stage.start(task("work"), task("clean", "work", teardown=True))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    (clean,) = await stage.claim(worker)
    report = await stage.engine.cancel_run(run_id)
    assert (report.stopped, report.asked) == (0, 0)
    assert (await stage.engine.renew(worker, [])).cancel == ()
    await stage.engine.cancel_task_run(clean.task_run_id)
    await stage.finish(worker, [clean], "cancelled")
    assert await stage.statuses(run_id) == {"work": "success", "clean": "cancelled"}
    # All of the work was done before the cancel came.
    assert await stage.run_status(run_id) == "success"


async def test_it_has_its_own_retries_and_outlives_its_worker(stage: Stage):
    run_id = await stage.start(
        task("work"), task("clean", "work", teardown=True, retry_count=1, retry_delay_seconds=5, max_deliveries=2)
    )
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    await stage.claim(worker)
    stage.clock.advance(LEASE_SECONDS + 1)
    assert await stage.engine.reap_attempts() == 1
    other = await stage.register()
    assert await stage.work(other, {"clean": "failed"}) == ["clean"]
    assert (await stage.statuses(run_id))["clean"] == "retrying"
    stage.clock.advance(6)
    await stage.engine.release_due()
    assert await stage.work(other) == ["clean"]
    assert await stage.run_status(run_id) == "success"


async def test_a_chain_of_clean_up_goes_on_after_a_failed_one(stage: Stage):
    run_id = await stage.start(
        task("work"), task("stop", "work", teardown=True), task("wipe", "stop", "work", teardown=True)
    )
    assert await stage.work(await stage.register(), {"stop": "failed"}) == ["work", "stop", "wipe"]
    assert await stage.run_status(run_id) == "success"
    assert await stage.statuses(run_id) == {"work": "success", "stop": "failed", "wipe": "success"}


async def test_a_retry_cleans_up_again_only_if_that_had_failed(stage: Stage):
    run_id = await stage.start(*ITEMS)
    worker = await stage.register()
    await stage.work(worker, {"work": "failed", "clean": "failed"})
    await stage.engine.retry_run(run_id)
    assert sorted(await stage.work(worker)) == ["clean", "work"]
    assert await stage.run_status(run_id) == "success"
    again = await stage.start(*ITEMS)
    await stage.work(worker, {"work": "failed"})
    await stage.engine.retry_run(again)
    assert await stage.work(worker) == ["work"]
    assert await stage.run_status(again) == "success"
