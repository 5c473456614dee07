"""submit: runs with their task runs, all or none, within max_active_runs."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import make_uuid7
from rota.engine.submit import RunRequest
from rota.store.tables import schedules, state_history, task_runs, workflow_runs
from tests.engine.stage import START, Stage, task, workflow

REAL_TIME_NS = time.time_ns
FIVE_MINUTES = 300_000_000_000
UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def test_a_run_has_a_task_run_for_each_task(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("c", "a", trigger_rule="always"))
    assert await stage.statuses(run_id) == {"a": "queued", "b": "pending", "c": "queued"}
    run = await stage.run_row(run_id)
    assert (run.status, run.remaining, run.failed_count, run.trigger) == ("running", 3, 0, "manual")
    assert run.logical_date == run.created_at == run.started_at == START
    assert [move[:2] for move in await stage.history(run_id)] == [(None, "running")]


async def test_params_note_and_logical_date_are_kept(stage: Stage):
    workflow_id = await stage.define(task("a"))
    logical_at = START - timedelta(days=400, microseconds=7)
    run_id = await stage.submit(workflow_id, params={"x": ["\0", "é", 1.5]}, note="by hand", logical_at=logical_at)
    run = await stage.run_row(run_id)
    assert (run.params, run.note, run.logical_date) == ({"x": ["\0", "é", 1.5]}, "by hand", logical_at)


async def test_a_workflow_without_tasks_cannot_run(stage: Stage):
    workflow_id = await stage.define(task("a"))
    other = await stage.define(task("b"), name="other")
    version_of_other = (await stage.find("other")).current_version_id
    with pytest.raises(Conflict):
        await stage.submit(workflow_id, version_id=version_of_other)
    with pytest.raises(NotFound):
        await stage.submit(UNKNOWN)
    assert other != workflow_id
    assert await stage.rows(select(workflow_runs)) == []


async def test_submit_many_is_all_or_none(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    with pytest.raises(NotFound):
        await stage.engine.submit_many([RunRequest(workflow_id), RunRequest(UNKNOWN)])
    assert await stage.rows(select(workflow_runs)) == []
    assert await stage.rows(select(state_history).where(state_history.c.entity_type != "worker")) == []
    runs = await stage.engine.submit_many([RunRequest(workflow_id)] * 2_500)
    assert len({run.id for run in runs}) == 2_500
    ((count,),) = await stage.rows(select(func.count()).select_from(task_runs))
    assert count == 2_500


async def test_a_tick_makes_one_run(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="0 0 * * *")
    (schedule,) = await stage.rows(select(schedules.c.id))
    request = RunRequest(workflow_id, trigger="schedule", schedule_id=schedule.id, logical_at=START)
    first, second = await stage.engine.submit_many([request, request])
    third = await stage.engine.submit(request)
    assert first.id is not None
    assert (second.id, third.id) == (None, None)
    assert len(await stage.runs_of(workflow_id)) == 1


async def test_runs_beyond_the_limit_wait_and_start_in_order(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", "a"), max_active_runs=2)
    submitted = await stage.engine.submit_many([RunRequest(workflow_id)] * 5)
    runs = [run.id for run in submitted if run.id is not None]
    assert [run.status for run in submitted] == ["running", "running", "pending", "pending", "pending"]
    assert await stage.statuses(runs[2]) == {"a": "pending", "b": "pending"}
    for turn in range(5):
        active = [run for run in runs if await stage.run_status(run) == "running"]
        assert active == runs[turn : turn + 2]
        stage.clock.advance(1)
        await stage.engine.cancel_run(active[0])
    assert {await stage.run_status(run) for run in runs} == {"cancelled"}


async def test_turns_go_to_the_oldest_run_whichever_node_made_it(stage: Stage, monkeypatch):
    """Ids carry the time of the node that makes them; turns must not."""
    workflow_id = await stage.define(task("a"), max_active_runs=1)
    first = await stage.submit(workflow_id)
    with monkeypatch.context() as fast:
        fast.setattr(time, "time_ns", lambda: REAL_TIME_NS() + FIVE_MINUTES)
        stage.clock.advance(1)
        second = await stage.submit(workflow_id)
    stage.clock.advance(1)
    third = await stage.submit(workflow_id)
    assert third < second
    await stage.engine.cancel_run(first)
    assert [await stage.run_status(run) for run in (second, third)] == ["running", "pending"]


async def test_the_run_timeout_starts_with_the_turn(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=1, run_timeout_seconds=60)
    first, second = [await stage.submit(workflow_id) for _ in range(2)]
    assert (await stage.run_row(first)).deadline_at == START + timedelta(seconds=60)
    assert (await stage.run_row(second)).deadline_at is None
    stage.clock.advance(50)
    await stage.engine.cancel_run(first)
    assert (await stage.run_row(second)).deadline_at == START + timedelta(seconds=110)


async def test_ten_thousand_tasks_in_one_run(stage: Stage):
    names = [f"t{number}" for number in range(9_998)]
    spec = workflow(task("start"), *(task(name, "start") for name in names), task("end", *names))
    defined = await stage.engine.apply_workflow(spec)
    run_id = await stage.submit(defined.id)
    run = await stage.run_row(run_id)
    assert (run.task_count, run.remaining) == (10_000, 10_000)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    ((count,),) = await stage.rows(select(func.count()).where(task_runs.c.status == "queued"))
    assert count == 9_998
