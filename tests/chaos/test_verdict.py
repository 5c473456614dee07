"""The verdict itself: it finds no fault where there is none, and finds each that is planted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from rota.store.dialect import NOW
from rota.store.tables import state_history, task_runs, workflow_runs
from rota.store.tables_service import workers
from tests.chaos.report import Report
from tests.chaos.verdict import Effects, judge
from tests.engine.stage import LEASE_SECONDS, Stage, open_stage, task

LINES = ("start 1", "end 1", "start 2", "end 2")


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    async with open_stage(database_url) as opened:
        yield opened


@pytest.fixture
async def run_id(stage: Stage) -> str:
    """A run whose first attempt was lost, came back late, and was refused."""
    run_id = await stage.start(task("a"))
    lost = await stage.register(name="lost")
    items = await stage.claim(lost)
    stage.clock.advance(LEASE_SECONDS + 1)
    assert await stage.engine.reap_attempts() == 1
    assert await stage.engine.reap_workers() == 1
    finder = await stage.register(name="finder")
    assert await stage.work(finder) == ["a"]
    assert not (await stage.finish(lost, items))[0].is_accepted
    await stage.engine.leave(finder)
    return run_id


async def _judge(stage: Stage, run_id: str, *, effects: Effects | None = None, acknowledged: Any = None) -> Report:
    report = Report("planted")
    found = {f"{run_id}.a": LINES} if effects is None else effects
    await judge(stage.url, report, acknowledged=acknowledged or [run_id], cancelled=[], effects=found)
    return report


async def test_no_fault_is_found_where_there_is_none(stage, run_id):
    report = await _judge(stage, run_id)
    assert report.faults == []
    assert report.counts["late results refused: success"] == 1
    assert report.counts["attempts lost"] == 1
    assert report.counts["task runs whose effect happened more than once"] == 1


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(("start 1", "start 2"), id="a success that did not happen"),
        pytest.param((*LINES, "start 2"), id="an attempt that was executed twice"),
        pytest.param((*LINES, "start 3"), id="an attempt that nobody knows of"),
    ],
)
async def test_wrong_effects_are_found(stage, run_id, lines):
    assert (await _judge(stage, run_id, effects={f"{run_id}.a": lines})).faults


async def test_a_run_that_is_gone_is_found(stage, run_id):
    assert (await _judge(stage, run_id, acknowledged=[run_id, "another"])).faults


def _success_again(row: Any) -> Any:
    return insert(state_history).values(
        entity_type="task_run",
        entity_id=row.id,
        root_id=row.run_id,
        namespace=row.namespace,
        old_state="running",
        new_state="success",
        changed_at=NOW,
        metadata={"attempt": row.attempt},
    )


def _no_success(row: Any) -> Any:
    ours = state_history.c.entity_id == row.id
    return delete(state_history).where(ours, state_history.c.new_state == "success")


def _open_run(row: Any) -> Any:
    values = {"status": "running", "finished_at": None, "remaining": 1}
    return update(workflow_runs).where(workflow_runs.c.id == row.run_id).values(values)


def _open_task_run(row: Any) -> Any:
    values = {"status": "running", "finished_at": None, "lease_expires_at": NOW}
    return update(task_runs).where(task_runs.c.id == row.id).values(values)


def _worker_that_never_left(_row: Any) -> Any:
    return update(workers).values(status="active")


@pytest.mark.parametrize("plant", [_success_again, _no_success, _open_run, _open_task_run, _worker_that_never_left])
async def test_a_wrong_database_is_found(stage, run_id, plant: Callable[[Any], Any]):
    await stage.execute(plant((await stage.task_rows(run_id))["a"]))
    assert (await _judge(stage, run_id)).faults
