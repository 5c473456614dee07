"""fire, when earlier runs of the schedule are open: each policy, over several nodes, and what is recorded."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.work import AttemptKey
from tests.engine.stage import START, Stage, open_node, task

MINUTE = timedelta(minutes=1)


async def _define(stage: Stage, overlap: str, *items: dict[str, Any], **fields: Any) -> str:
    rule = {"schedule_cron": "* * * * *", "overlap": overlap, **fields}
    return await stage.define(*(items or (task("a"),)), schedules=[rule], max_active_runs=0)


async def _tick(stage: Stage, minutes: int = 1) -> None:
    for _ in range(minutes):
        stage.clock.advance(60)
        await stage.engine.fire()


async def _runs(stage: Stage, workflow_id: str) -> list[tuple[int, str]]:
    """(minute, status) of every run."""
    return [((row.logical_date - START) // MINUTE, row.status) for row in await stage.runs_of(workflow_id)]


async def _decisions(stage: Stage, workflow_id: str) -> list[tuple[str, int, str | None]]:
    (row,) = await stage.schedule_rows(workflow_id)
    found = await stage.history(row.id)
    return [(new, details.get("count", 0), details.get("reason")) for _old, new, details in found]


async def test_skip_runs_one_at_a_time(stage: Stage):
    workflow_id = await _define(stage, "skip")
    await _tick(stage, 3)
    assert await _runs(stage, workflow_id) == [(1, "running")]
    worker = await stage.register()
    await stage.work(worker)
    await _tick(stage)
    assert await _runs(stage, workflow_id) == [(1, "success"), (4, "running")]
    expected = [("fired", 1, None), ("skipped", 1, "overlap"), ("skipped", 1, "overlap"), ("fired", 1, None)]
    assert await _decisions(stage, workflow_id) == expected


async def test_buffer_one_keeps_one_waiting(stage: Stage):
    workflow_id = await _define(stage, "buffer_one")
    await _tick(stage, 4)
    assert await _runs(stage, workflow_id) == [(1, "running"), (2, "pending")]
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    assert await _runs(stage, workflow_id) == [(1, "success"), (2, "running")]
    await _tick(stage)
    assert await _runs(stage, workflow_id) == [(1, "success"), (2, "running"), (5, "pending")]
    kinds = [(new, reason) for new, _count, reason in await _decisions(stage, workflow_id)]
    expected = [("fired", None), ("buffered", None), *[("skipped", "buffer_full")] * 2, ("buffered", None)]
    assert kinds == expected


async def test_buffer_all_runs_every_tick_in_order(stage: Stage):
    workflow_id = await _define(stage, "buffer_all")
    await _tick(stage, 5)
    assert [status for _minute, status in await _runs(stage, workflow_id)] == ["running", *["pending"] * 4]
    worker = await stage.register()
    for done in range(1, 6):
        (item,) = await stage.claim(worker)
        await stage.finish(worker, [item])
        assert await _runs(stage, workflow_id) == [
            (minute, "success" if minute <= done else "running" if minute == done + 1 else "pending")
            for minute in range(1, 6)
        ]


async def test_a_failed_run_makes_room_too(stage: Stage):
    workflow_id = await _define(stage, "buffer_all")
    await _tick(stage, 2)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    assert await _runs(stage, workflow_id) == [(1, "failed"), (2, "running")]


async def test_buffered_runs_keep_to_max_active_runs_as_well(stage: Stage):
    rules = [{"schedule_cron": "* * * * *", "overlap": "buffer_all"}, {"interval_seconds": 60, "overlap": "allow"}]
    workflow_id = await stage.define(task("a"), schedules=rules, max_active_runs=1)
    await _tick(stage, 2)
    worker = await stage.register()
    for left in (3, 2, 1, 0):
        (item,) = await stage.claim(worker)
        await stage.finish(worker, [item])
        statuses = [status for _minute, status in await _runs(stage, workflow_id)]
        assert statuses.count("running") == min(1, left)
        assert statuses.count("pending") == max(0, left - 1)


async def test_cancel_other_starts_when_the_other_has_ended(stage: Stage):
    workflow_id = await _define(
        stage, "cancel_other", task("a"), task("clean", "a", teardown=True, trigger_rule="all_done")
    )
    await _tick(stage)
    worker = await stage.register()
    (old,) = await stage.claim(worker)
    await _tick(stage)
    assert await _runs(stage, workflow_id) == [(1, "running"), (2, "pending")]
    reply = await stage.engine.renew(worker, [AttemptKey(old.task_run_id, old.attempt)])
    assert [key.task_run_id for key in reply.cancel] == [old.task_run_id]
    await stage.finish(worker, [old], "cancelled", error_type="cancelled")
    # Its clean-up comes first.
    assert await _runs(stage, workflow_id) == [(1, "running"), (2, "pending")]
    (clean,) = await stage.claim(worker)
    assert clean.task == "clean"
    await stage.finish(worker, [clean])
    assert await _runs(stage, workflow_id) == [(1, "cancelled"), (2, "running")]
    kinds = [new for new, _count, _reason in await _decisions(stage, workflow_id)]
    assert kinds == ["fired", "replaced", "buffered"]


async def test_cancel_other_starts_at_once_when_nothing_has_to_be_killed(stage: Stage):
    workflow_id = await _define(stage, "cancel_other")
    await _tick(stage, 3)
    assert await _runs(stage, workflow_id) == [(1, "cancelled"), (2, "cancelled"), (3, "running")]


async def test_terminate_other_waits_for_nobody(stage: Stage):
    workflow_id = await _define(
        stage, "terminate_other", task("a"), task("clean", "a", teardown=True, trigger_rule="all_done")
    )
    await _tick(stage)
    worker = await stage.register()
    (old,) = await stage.claim(worker)
    await _tick(stage)
    assert await _runs(stage, workflow_id) == [(1, "cancelled"), (2, "running")]
    first = (await stage.runs_of(workflow_id))[0]
    rows = await stage.task_rows(first.id)
    assert {name: (row.status, row.is_unconfirmed) for name, row in rows.items()} == {
        "a": ("cancelled", True),
        "clean": ("cancelled", False),
    }
    reply = await stage.engine.renew(worker, [AttemptKey(old.task_run_id, old.attempt)])
    assert [key.task_run_id for key in reply.lost] == [old.task_run_id]
    (result,) = await stage.finish(worker, [old])
    assert (result.is_accepted, result.code) == (False, "late")


@pytest.mark.parametrize("overlap", ["cancel_other", "terminate_other"])
async def test_of_several_ticks_only_the_newest_replaces(stage: Stage, overlap: str):
    workflow_id = await _define(stage, overlap, misfire="all", grace_seconds=1)
    await _tick(stage)
    stage.clock.advance(240)
    await stage.engine.fire()
    assert await _runs(stage, workflow_id) == [(1, "cancelled"), (5, "running")]
    assert ("skipped", 3, "replaced_by_newer") in await _decisions(stage, workflow_id)


async def test_an_outage_buffers_no_more_than_the_limits(stage: Stage):
    workflow_id = await _define(stage, "buffer_all", misfire="all", catch_up_limit=1000, grace_seconds=1)
    stage.clock.advance(60 * 5_000 - 20)
    await stage.engine.fire()
    assert len(await _runs(stage, workflow_id)) == 1000
    await _tick(stage, 3)
    assert len(await _runs(stage, workflow_id)) == 1001
    reasons = {(new, reason) for new, _count, reason in await _decisions(stage, workflow_id)}
    assert reasons >= {("missed", "over_catch_up_limit"), ("skipped", "buffer_full")}


async def test_a_manual_run_is_in_nobodys_way(stage: Stage):
    workflow_id = await _define(stage, "skip")
    await stage.submit(workflow_id)
    await _tick(stage)
    assert sorted(status for _minute, status in await _runs(stage, workflow_id)) == ["running", "running"]


async def test_runs_wait_for_the_end_of_one_that_overlaps_were_allowed_for(stage: Stage):
    workflow_id = await _define(stage, "allow")
    await _tick(stage, 2)
    await _define(stage, "buffer_all")
    await _tick(stage, 2)
    assert [status for _minute, status in await _runs(stage, workflow_id)] == ["running"] * 2 + ["pending"] * 2
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    # Nobody counted on these ends, so the duty that looks for missed turns starts the next one.
    await stage.engine.reap_runs()
    assert [status for _minute, status in await _runs(stage, workflow_id)] == [
        *["success"] * 2,
        "running",
        "pending",
    ]


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other"])
async def test_ends_and_ticks_at_the_same_time(database_url: str, stage: Stage, overlap: str):
    ids = []
    for number in range(5):
        rule = {"schedule_cron": "* * * * *", "overlap": overlap}
        ids.append(await stage.define(task("a"), name=f"flow{number}", schedules=[rule], max_active_runs=0))
    worker = await stage.register()
    async with open_node(database_url, stage.clock) as other:
        for _ in range(6):
            stage.clock.advance(20)
            await stage.engine.renew(worker, [])
            items = await stage.claim(worker)
            stage.clock.advance(40)
            await asyncio.gather(
                stage.engine.fire(),
                other.engine.fire(),
                *(other.engine.report(worker, []) for _ in range(2)),
                *(stage.finish(worker, [item]) for item in items),
            )
            await stage.engine.fire()
        for _ in range(20):
            await stage.finish(worker, await stage.claim(worker))
            await stage.engine.reap_runs()
    for workflow_id in ids:
        statuses = [status for _minute, status in await _runs(stage, workflow_id)]
        assert statuses.count("running") + statuses.count("pending") == 0, statuses
        ticks = [minute for minute, _status in await _runs(stage, workflow_id)]
        assert len(set(ticks)) == len(ticks)
        decided = sum(count for _new, count, _reason in await _decisions(stage, workflow_id))
        assert decided == 6
