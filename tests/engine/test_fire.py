"""fire: each tick is decided once, on any number of nodes, over pauses, edits and outages."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from rota.domain.errors import NotFound
from rota.domain.ids import make_uuid7
from tests.engine.stage import START, Stage, open_node, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")
MINUTE = timedelta(minutes=1)


async def _ticks(stage: Stage, workflow_id: str) -> list[datetime]:
    return [row.logical_date for row in await stage.runs_of(workflow_id)]


async def _decisions(stage: Stage, workflow_id: str) -> list[dict]:
    (row,) = await stage.schedule_rows(workflow_id)
    return [details for _old, new, details in await stage.history(row.id) if new in ("skipped", "missed")]


async def test_a_tick_fires_at_its_time_and_once(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=0)
    assert (await stage.engine.find_next_due()) == (START + MINUTE, START)
    stage.clock.advance(59.999)
    assert (await stage.engine.fire()).runs == 0
    stage.clock.advance(0.001)
    report = await stage.engine.fire()
    assert (report.schedules, report.runs, report.skipped) == (1, 1, 0)
    assert (await stage.engine.fire()).schedules == 0
    (run,) = await stage.runs_of(workflow_id)
    assert (run.logical_date, run.trigger, run.status) == (START + MINUTE, "schedule", "running")
    assert (await stage.engine.find_next_due())[0] == START + 2 * MINUTE


async def test_two_nodes_fire_each_tick_once(database_url: str, stage: Stage):
    for number in range(20):
        await stage.define(task("a"), name=f"flow{number}", schedule_cron="* * * * *", max_active_runs=0)
    ids = [(await stage.find(f"flow{number}")).id for number in range(20)]
    async with open_node(database_url, stage.clock) as other:
        for minute in range(1, 6):
            stage.clock.advance(60)
            await asyncio.gather(*(node.engine.fire() for node in (stage.node, other) * 3))
            # What a node had left to the other is taken up now.
            await stage.engine.fire()
            expected = [START + number * MINUTE for number in range(1, minute + 1)]
            for workflow_id in ids:
                assert await _ticks(stage, workflow_id) == expected


async def test_a_clock_that_jumps_back_fires_nothing_again(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=0)
    stage.clock.advance(60)
    await stage.engine.fire()
    stage.clock.advance(-300)
    assert (await stage.engine.fire()).schedules == 0
    stage.clock.advance(300)
    assert (await stage.engine.fire()).schedules == 0
    stage.clock.advance(60)
    await stage.engine.fire()
    assert await _ticks(stage, workflow_id) == [START + MINUTE, START + 2 * MINUTE]


@pytest.mark.parametrize(
    ("misfire", "fields", "expected", "skipped"),
    [
        ("latest", {}, [10], 9),
        ("skip", {}, [], 10),
        ("all", {}, list(range(1, 11)), 0),
        ("all", {"catch_up_limit": 3}, [8, 9, 10], 7),
    ],
)
async def test_what_was_missed(stage: Stage, misfire: str, fields: dict, expected: list[int], skipped: int):
    workflow_id = await stage.define(
        task("a"),
        schedules=[{"schedule_cron": "* * * * *", "misfire": misfire, "grace_seconds": 5, **fields}],
        max_active_runs=0,
    )
    stage.clock.advance(10 * 60 + 30)
    await stage.engine.fire()
    assert await _ticks(stage, workflow_id) == [START + number * MINUTE for number in expected]
    decisions = await _decisions(stage, workflow_id)
    assert sum(decision["count"] for decision in decisions) == skipped
    stage.clock.advance(30)
    await stage.engine.fire()
    assert (await _ticks(stage, workflow_id))[-1] == START + 11 * MINUTE


async def test_a_pause_fires_nothing_of_its_time(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=0)
    await stage.engine.set_active(await stage.find(), is_active=False)
    assert (await stage.engine.find_next_due())[0] is None
    stage.clock.advance(600)
    assert (await stage.engine.fire()).schedules == 0
    await stage.engine.set_active(await stage.find(), is_active=True)
    assert (await stage.engine.fire()).schedules == 0
    stage.clock.advance(60)
    await stage.engine.fire()
    assert await _ticks(stage, workflow_id) == [START + 11 * MINUTE]


async def test_pausing_twice_changes_nothing(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *")
    before = await stage.schedule_rows(workflow_id)
    stage.clock.advance(10)
    await stage.engine.set_active(await stage.find(), is_active=True)
    assert await stage.schedule_rows(workflow_id) == before


async def test_an_edit_fires_nothing_of_the_past(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="0 0 * * *", max_active_runs=0)
    stage.clock.advance(600)
    await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=0)
    assert (await stage.engine.fire()).schedules == 0
    stage.clock.advance(60)
    await stage.engine.fire()
    assert await _ticks(stage, workflow_id) == [START + 11 * MINUTE]


async def test_an_interval_counts_from_its_anchor(stage: Stage):
    workflow_id = await stage.define(task("a"), interval_seconds=90, max_active_runs=0)
    for _ in range(4):
        stage.clock.advance(50)
        await stage.engine.fire()
    assert await _ticks(stage, workflow_id) == [START + timedelta(seconds=90), START + timedelta(seconds=180)]


async def test_a_single_instant_fires_once_and_is_finished(stage: Stage):
    at = START + timedelta(seconds=30)
    workflow_id = await stage.define(task("a"), run_at=at.isoformat())
    stage.clock.advance(31)
    await stage.engine.fire()
    stage.clock.advance(1000)
    assert (await stage.engine.fire()).schedules == 0
    assert await _ticks(stage, workflow_id) == [at]
    (row,) = await stage.schedule_rows(workflow_id)
    assert row.next_due_at is None
    assert (await stage.engine.explain_schedule(row.id)).code == "finished"


async def test_runs_of_a_schedule_keep_to_max_active_runs(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=2)
    for _ in range(4):
        stage.clock.advance(60)
        await stage.engine.fire()
    assert [row.status for row in await stage.runs_of(workflow_id)] == ["running", "running", "pending", "pending"]
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    assert [row.status for row in await stage.runs_of(workflow_id)] == ["success", "success", "running", "running"]


async def test_jitter_holds_a_tick_back(stage: Stage):
    workflow_id = await stage.define(
        task("a"), schedules=[{"schedule_cron": "* * * * *", "jitter_seconds": 40}], max_active_runs=0
    )
    (row,) = await stage.schedule_rows(workflow_id)
    late = (row.next_due_at - START - MINUTE).total_seconds()
    assert 0 <= late < 40
    stage.clock.advance(60 + late - 0.001)
    assert (await stage.engine.fire()).runs == 0
    stage.clock.advance(0.002)
    assert (await stage.engine.fire()).runs == 1
    assert await _ticks(stage, workflow_id) == [START + MINUTE]


async def test_a_schedule_uses_the_current_version(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=0)
    await stage.define(task("b"), schedule_cron="* * * * *", max_active_runs=0)
    stage.clock.advance(60)
    await stage.engine.fire()
    (run,) = await stage.runs_of(workflow_id)
    assert set(await stage.statuses(run.id)) == {"b"}


async def test_many_schedules_at_one_instant(stage: Stage):
    for number in range(30):
        await stage.define(task("a"), name=f"flow{number}", schedule_cron="* * * * *")
    stage.clock.advance(60)
    assert (await stage.engine.fire()).runs == 30


async def test_why_a_schedule_does_not_fire(stage: Stage):
    workflow_id = await stage.define(
        task("a"), schedules=[{"schedule_cron": "* * * * *", "misfire": "skip", "grace_seconds": 1}], max_active_runs=0
    )
    (row,) = await stage.schedule_rows(workflow_id)
    answer = await stage.engine.explain_schedule(row.id)
    assert (answer.code, answer.next_check_at) == ("not_due", START + MINUTE)
    stage.clock.advance(150)
    await stage.engine.fire()
    stage.clock.advance(30)
    await stage.engine.fire()
    answer = await stage.engine.explain_schedule(row.id)
    assert answer.details["last_decision"]["decision"] == "fired"
    assert [(item["reason"], item["count"]) for item in await _decisions(stage, workflow_id)] == [("misfire", 2)]
    assert answer.details["last_run"]["logical_date"] == START + 3 * MINUTE
    await stage.engine.set_active(await stage.find(), is_active=False)
    assert (await stage.engine.explain_schedule(row.id)).code == "paused"
    with pytest.raises(NotFound):
        await stage.engine.explain_schedule(UNKNOWN)
