"""prepare: what is due soon is read ahead, each schedule once, and nothing depends on it."""

from __future__ import annotations

from datetime import timedelta

from tests.engine.stage import START, Stage, task


async def test_what_is_due_in_the_slot_is_known_before_its_instant(stage: Stage):
    for number in range(3):
        await stage.define(task("a"), name=f"soon{number}", schedule_cron="* * * * *", max_active_runs=0)
    await stage.define(task("a"), name="later", schedule_cron="0 0 * * *", max_active_runs=0)
    core = stage.engine._core
    assert (await stage.engine.prepare(10)).count == 0
    first = await stage.engine.prepare(60)
    assert (first.count, first.place is not None) == (3, True)
    assert (await stage.engine.prepare(60, first.place)).count == 0
    known = [(await stage.find(f"soon{number}")).current_version_id for number in range(3)]
    assert all(core.versions.get(str(version_id)) for version_id in known)
    stage.clock.advance(60)
    assert (await stage.engine.fire()).runs == 3
    assert (await stage.engine.prepare(60, first.place)).count == 3


async def test_an_edit_after_reading_ahead_counts(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *", max_active_runs=0)
    await stage.engine.prepare(60)
    await stage.define(task("b"), schedule_cron="*/2 * * * *", max_active_runs=0)
    stage.clock.advance(120)
    await stage.engine.fire()
    (run,) = await stage.runs_of(workflow_id)
    assert run.logical_date == START + timedelta(minutes=2)
    assert set(await stage.statuses(run.id)) == {"b"}
