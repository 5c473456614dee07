"""A run and the one that has started it meet on nodes of their own: one outcome for each, and nobody waits for ever."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from rota.domain.work import Finished
from rota.engine.engine import Engine
from rota.engine.mark import Mark
from rota.engine.submit import RunRequest
from rota.store.tables import workflow_runs
from tests.engine.stage import Stage, task
from tests.engine.test_races import TIMES, engines, meet

__all__ = ["engines"]


async def _define(stage: Stage) -> str:
    await stage.define(task("work"), name="child", max_active_runs=0)
    again = {"retry_count": 1, "retry_delay_seconds": 0}
    return await stage.define(
        task("call", workflow="child", **again), task("b", "call"), name="parent", max_active_runs=0
    )


async def _follow_all(stage: Stage, engines: list[Engine]) -> None:
    for engine in [*engines, stage.engine]:
        while await engine.follow():
            pass


async def _open_runs(stage: Stage) -> list[str]:
    found = await stage.rows(select(workflow_runs.c.id).where(workflow_runs.c.finished_at.is_(None)))
    return [row.id for row in found]


@pytest.mark.parametrize("status", ["success", "failed"])
async def test_the_end_of_a_run_against_a_cancel_of_its_caller(stage: Stage, engines: list[Engine], status: str):
    parent_id = await _define(stage)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(parent_id)
        await stage.follow()
        (item,) = await stage.claim(worker)
        await meet(
            engines[0].report(worker, [Finished(item.task_run_id, 1, status)]),
            engines[1].cancel_run(run_id),
            engines[2].follow(),
            engines[3].follow(),
        )
        await _follow_all(stage, engines)
        await stage.finish(worker, await stage.claim(worker), "cancelled")
        await _follow_all(stage, engines)
        assert await stage.run_status(run_id) == "cancelled"
        statuses = await stage.statuses(run_id)
        assert statuses["b"] == "cancelled"
        assert statuses["call"] in ("cancelled", status)
        assert await _open_runs(stage) == []


async def test_an_end_is_told_once_by_many(stage: Stage, engines: list[Engine]):
    """All nodes look for what is to be told at the same moment, and so do those who have caused it."""
    parent_id = await _define(stage)
    hearing_id = await stage.define(task("hear"), name="hearing", on=[{"workflow": "child"}], max_active_runs=0)
    worker = await stage.register()
    for turn in range(1, TIMES + 1):
        runs = [run.id for run in await stage.engine.submit_many([RunRequest(parent_id)] * 4)]
        await stage.follow()
        items = [item for item in await stage.claim(worker) if item.task == "work"]
        assert len(items) == 4
        calls = [
            engine.report(worker, [Finished(item.task_run_id, 1, "success")])
            for engine, item in zip(engines, items, strict=True)
        ]
        await meet(*calls, *(engine.follow() for engine in engines))
        await _follow_all(stage, engines)
        await stage.work(worker)
        assert [await stage.run_status(str(run_id)) for run_id in runs] == ["success"] * 4
        assert len(await stage.runs_of(hearing_id)) == 4 * turn
    assert await _open_runs(stage) == []


async def test_a_mark_against_the_end_of_the_run(stage: Stage, engines: list[Engine]):
    parent_id = await _define(stage)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(parent_id)
        await stage.follow()
        (item,) = await stage.claim(worker)
        call = await stage.task_run_id(run_id, "call")
        await meet(
            engines[0].report(worker, [Finished(item.task_run_id, 1, "failed")]),
            engines[1].mark_task_run(call, Mark("skipped")),
            engines[2].follow(),
            engines[3].cancel_task_run(call),
        )
        await _follow_all(stage, engines)
        await stage.work(worker)
        assert await _open_runs(stage) == []


async def test_two_levels_are_cancelled_from_both_ends(stage: Stage, engines: list[Engine]):
    await _define(stage)
    top_id = await stage.define(task("top", workflow="parent"), name="top", max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(top_id)
        await stage.follow()
        (item,) = await stage.claim(worker)
        middle, bottom = (await stage.run_row(run_id)), item.run_id
        await meet(
            engines[0].cancel_run(middle.id),
            engines[1].cancel_run(bottom),
            engines[2].report(worker, [Finished(item.task_run_id, 1, "success")]),
            engines[3].follow(),
        )
        await _follow_all(stage, engines)
        await stage.finish(worker, await stage.claim(worker), "cancelled")
        await stage.work(worker)
        assert await stage.run_status(run_id) == "cancelled"
        assert await _open_runs(stage) == []


async def test_changes_of_definitions_against_calls(stage: Stage, engines: list[Engine]):
    """What is called may be deleted and made again at any moment: then the task fails, or the run goes on."""
    parent_id = await _define(stage)
    worker = await stage.register()
    for _ in range(TIMES):
        child_id = (await stage.find("child")).id
        submitted, _deleted, _done = await meet(
            engines[0].submit(RunRequest(parent_id)), engines[1].delete_workflow(child_id), engines[2].follow()
        )
        await stage.define(task("work"), name="child", max_active_runs=0)
        await _follow_all(stage, engines)
        await stage.work(worker)
        assert await stage.run_status(submitted.id) in ("success", "failed")
        assert await _open_runs(stage) == []
