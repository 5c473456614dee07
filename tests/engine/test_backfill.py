"""backfill: each tick of a range once, within its limits, over pauses, several nodes and what is there already."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.domain.errors import Conflict, InvalidInput, NotFound
from rota.domain.ids import make_uuid7
from rota.engine.backfill import BackfillRequest
from tests.engine.stage import START, Stage, open_node, task

HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def _create(stage: Stage, **fields: Any) -> str:
    request = BackfillRequest(**{"from_at": MIDNIGHT, "until_at": MIDNIGHT + 4 * HOUR, **fields})
    return await stage.engine.create_backfill(await stage.find(), request)


async def _hours(stage: Stage, workflow_id: str) -> list[int]:
    """The hours that have runs by backfills, in the order of their creation."""
    rows = sorted(await stage.runs_of(workflow_id), key=lambda row: str(row.id))
    return [(row.logical_date - MIDNIGHT) // HOUR for row in rows if row.trigger == "backfill"]


async def _finish(stage: Stage) -> None:
    worker = await stage.register()
    for _ in range(100):
        await stage.engine.step_backfills()
        if not await stage.work(worker):
            break
    assert await stage.engine.step_backfills() == 0


@pytest.fixture
async def flow(stage: Stage) -> str:
    return await stage.define(task("a"), schedule_cron="0 * * * *", max_active_runs=0)


async def test_every_tick_of_the_range_runs_once(stage: Stage, flow: str):
    backfill_id = await _create(stage, max_active=2)
    assert await stage.engine.step_backfills() == 2
    assert await stage.engine.step_backfills() == 0
    assert await _hours(stage, flow) == [0, 1]
    await _finish(stage)
    assert await _hours(stage, flow) == [0, 1, 2, 3, 4]
    rows = await stage.runs_of(flow)
    assert {(row.status, row.schedule_id, row.backfill_id) for row in rows} == {("success", None, backfill_id)}
    assert [new for _old, new, _details in await stage.history(backfill_id)] == ["running", "done"]


async def test_the_newest_first(stage: Stage, flow: str):
    await _create(stage, is_backward=True)
    await _finish(stage)
    assert await _hours(stage, flow) == [4, 3, 2, 1, 0]


async def test_only_what_is_missing(stage: Stage, flow: str):
    await stage.submit(flow, logical_at=MIDNIGHT + HOUR)
    failed = await stage.submit(flow, logical_at=MIDNIGHT + 2 * HOUR)
    worker = await stage.register()
    for item in await stage.claim(worker):
        await stage.finish(worker, [item], "failed" if item.run_id == failed else "success")
    await _create(stage, max_active=10)
    await _finish(stage)
    assert await _hours(stage, flow) == [0, 2, 3, 4]
    await _create(stage, is_only_missing=False, max_active=10)
    await _finish(stage)
    assert sorted(await _hours(stage, flow)) == [0, 0, 1, 2, 2, 3, 3, 4, 4]


async def test_a_limit_of_runs(stage: Stage, flow: str):
    await _create(stage, max_runs=3, max_active=10)
    await _finish(stage)
    assert await _hours(stage, flow) == [0, 1, 2]


async def test_pause_resume_and_cancel(stage: Stage, flow: str):
    backfill_id = await _create(stage)
    await stage.engine.step_backfills()
    await stage.engine.change_backfill("default", backfill_id, "paused")
    worker = await stage.register()
    await stage.work(worker)
    assert await stage.engine.step_backfills() == 0
    await stage.engine.change_backfill("default", backfill_id, "running")
    await stage.engine.step_backfills()
    assert await _hours(stage, flow) == [0, 1]
    await stage.engine.change_backfill("default", backfill_id, "cancelled")
    assert [row.status for row in await stage.runs_of(flow)] == ["success", "cancelled"]
    assert await stage.engine.step_backfills() == 0
    with pytest.raises(Conflict):
        await stage.engine.change_backfill("default", backfill_id, "running")
    with pytest.raises(NotFound):
        await stage.engine.change_backfill("default", UNKNOWN, "paused")
    with pytest.raises(NotFound):
        await stage.engine.change_backfill("elsewhere", backfill_id, "paused")


async def test_rule_and_version_are_those_of_the_request(stage: Stage, flow: str):
    await _create(stage, max_active=10)
    await stage.define(task("b"), schedule_cron="30 * * * *", max_active_runs=0)
    await _finish(stage)
    assert await _hours(stage, flow) == [0, 1, 2, 3, 4]
    assert set(await stage.statuses((await stage.runs_of(flow))[0].id)) == {"a"}


async def test_several_nodes_make_each_run_once(database_url: str, stage: Stage, flow: str):
    await _create(stage, until_at=MIDNIGHT + 11 * HOUR, max_active=3)
    worker = await stage.register()
    async with open_node(database_url, stage.clock) as other:
        for _ in range(12):
            await asyncio.gather(*(node.engine.step_backfills() for node in (stage.node, other) * 2))
            await stage.finish(worker, await stage.claim(worker))
    assert await _hours(stage, flow) == list(range(12))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"until_at": MIDNIGHT - HOUR}, "to"),
        ({"until_at": START + HOUR}, "to"),
        ({"from_at": MIDNIGHT - timedelta(days=3650)}, "max_runs"),
        ({"schedule_id": UNKNOWN}, "schedule_id"),
    ],
)
async def test_what_is_refused(stage: Stage, flow: str, fields: dict[str, Any], field: str):
    with pytest.raises(InvalidInput) as caught:
        await _create(stage, **fields)
    assert [error.field for error in caught.value.errors] == [field]
    assert await stage.engine.step_backfills() == 0


async def test_a_million_runs_within_a_limit_that_was_given(stage: Stage, flow: str):
    await _create(stage, from_at=MIDNIGHT - timedelta(days=3650), max_runs=5, max_active=10)
    await _finish(stage)
    assert len(await _hours(stage, flow)) == 5


async def test_without_a_schedule_there_is_nothing_to_fill(stage: Stage):
    await stage.define(task("a"))
    with pytest.raises(InvalidInput, match="has no schedule"):
        await _create(stage)
