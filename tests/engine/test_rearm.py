"""rearm: when the rules of a zone have changed, the next ticks move and nothing fires twice."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select, update

from rota.engine import rearm
from rota.store.tables import schedules
from tests.engine.stage import START, Stage, task

HOUR = timedelta(hours=1)


async def _shift(stage: Stage, schedule_id: str, by: timedelta) -> None:
    """The wake-up as older rules of the zone would have had it."""
    (row,) = await stage.rows(select(schedules).where(schedules.c.id == schedule_id))
    values = {"next_due_at": row.next_due_at + by}
    await stage.execute(update(schedules).where(schedules.c.id == schedule_id).values(values))


async def test_a_wake_up_by_older_rules_is_put_right(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="0 * * * *", timezone="Europe/Riga", max_active_runs=0)
    await stage.define(task("a"), name="other", interval_seconds=60)
    (row,) = await stage.schedule_rows(workflow_id)
    await _shift(stage, row.id, HOUR)
    assert (await stage.engine.rearm()) == rearm.Rearmed(1, 1, None)
    assert (await stage.engine.rearm()).moved == 0
    (after,) = await stage.schedule_rows(workflow_id)
    assert (after.next_due_at, after.cursor_at) == (row.next_due_at, row.cursor_at)
    assert [new for _old, new, _details in await stage.history(row.id)] == ["rearmed"]
    stage.clock.advance(3600)
    await stage.engine.fire()
    await stage.engine.rearm()
    assert [run.logical_date for run in await stage.runs_of(workflow_id)] == [START + HOUR]


async def test_all_batches_are_gone_through(stage: Stage, monkeypatch):
    monkeypatch.setattr(rearm, "BATCH", 2)
    for number in range(5):
        workflow_id = await stage.define(task("a"), name=f"flow{number}", schedule_cron="0 * * * *")
        await _shift(stage, (await stage.schedule_rows(workflow_id))[0].id, -HOUR / 2)
    moved, after_id = 0, None
    for _ in range(4):
        rearmed = await stage.engine.rearm(after_id)
        moved, after_id = moved + rearmed.moved, rearmed.after_id
        if after_id is None:
            break
    assert (moved, after_id) == (5, None)


async def test_what_is_paused_stays_as_it_is(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="0 * * * *")
    (row,) = await stage.schedule_rows(workflow_id)
    await stage.engine.set_schedule_active(row.id, is_active=False)
    await _shift(stage, row.id, HOUR)
    assert (await stage.engine.rearm()).moved == 0
