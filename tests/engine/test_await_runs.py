"""Waits for runs of other workflows, and for tasks of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import InvalidInput
from tests.engine.stage import START, Stage, open_node, task, workflow


async def _wait(stage: Stage, run: dict[str, Any] | None = None, **fields: Any) -> str:
    wait = {"run": {"workflow": "other", **(run or {})}}
    workflow_id = await stage.define(task("seen", wait=wait, **fields), task("b", "seen"), name="waiter")
    return await stage.submit(workflow_id, logical_at=START)


async def _row(stage: Stage, run_id: str) -> Any:
    return (await stage.task_rows(run_id))["seen"]


async def _other(stage: Stage, **fields: Any) -> str:
    workflow_id = await stage.define(task("a"), task("z", "a"), name="other", **fields)
    return await stage.submit(workflow_id, logical_at=START)


async def _look(stage: Stage, run_id: str, seconds: float = 60) -> tuple[str, str]:
    """How the wait stands, and what it was told, once it has looked again."""
    stage.clock.advance(seconds)
    await stage.engine.serve_due()
    row = await _row(stage, run_id)
    return row.status, row.waiting_for.get("last", "")


async def test_from_nothing_to_a_run_that_succeeded(stage: Stage):
    run_id = await _wait(stage, output="json")
    assert (await _row(stage, run_id)).holder == "wait"
    assert await _look(stage, run_id, 0) == ("running", "there is no such workflow")
    workflow_id = await stage.define(task("a"), name="other")
    # A run for another date is another run.
    await stage.submit(workflow_id, logical_at=START + timedelta(days=1))
    assert await _look(stage, run_id) == ("running", "there is no such run")
    other_id = await stage.submit(workflow_id, logical_at=START)
    assert await _look(stage, run_id) == ("running", f"run {other_id} is running")
    row = await _row(stage, run_id)
    found = await stage.engine.explain_task_run(row.id)
    assert (found.code, found.next_check_at) == ("waiting", row.due_at)
    assert found.sentence == (
        f"it waits for a run of other for 2026-01-05T12:00:00Z to end as success (now run {other_id} is running)"
    )
    await stage.work(await stage.register())
    assert (await _look(stage, run_id))[0] == "success"
    row = await _row(stage, run_id)
    told = {"run_id": other_id, "status": "success"}
    assert row.output == told
    assert (await stage.history(row.id))[-1][2] == {"attempt": 1, "awaited": told}
    assert await stage.work(await stage.register()) == ["b"]
    assert await stage.run_status(run_id) == "success"


async def test_a_run_of_a_schedule_is_found_by_its_tick(stage: Stage):
    await stage.define(task("a"), name="other", schedule_cron="0 * * * *")
    tick_at = START + timedelta(hours=1)
    run_id = await _wait(stage, {"logical_date": "{{ params.at }}"})
    assert (await _row(stage, run_id)).error_type == "bad_task"
    run_id = await _wait(stage, {"logical_date": tick_at.isoformat()})
    assert await _look(stage, run_id, 0) == ("running", "there is no such run")
    stage.clock.now = tick_at
    assert (await stage.engine.fire()).runs == 1
    await stage.work(await stage.register())
    assert (await _look(stage, run_id))[0] == "success"


async def test_a_failed_run_is_waited_for_until_it_is_mended(stage: Stage):
    run_id = await _wait(stage)
    other_id = await _other(stage)
    worker = await stage.register()
    await stage.work(worker, {"a": "failed"})
    assert await _look(stage, run_id) == ("running", f"run {other_id} is failed")
    await stage.engine.retry_run(other_id)
    await stage.work(await stage.register())
    assert (await _look(stage, run_id))[0] == "success"


@pytest.mark.parametrize(
    ("wanted", "outcome", "is_met"),
    [
        *(("success", "failed", False), ("failed", "failed", True), ("failed", "cancelled", False)),
        *(("cancelled", "cancelled", True), ("done", "cancelled", True), ("done", "failed", True)),
    ],
)
async def test_the_status_that_is_waited_for(stage: Stage, wanted: str, outcome: str, is_met: bool):
    run_id = await _wait(stage, {"status": wanted})
    other_id = await _other(stage)
    if outcome == "cancelled":
        await stage.engine.cancel_run(other_id)
    await stage.work(await stage.register(), {"a": outcome})
    assert (await _look(stage, run_id))[0] == ("success" if is_met else "running")


async def test_a_task_of_a_run(stage: Stage):
    run_id = await _wait(stage, {"task": "a"})
    other_id = await _other(stage)
    assert await _look(stage, run_id) == ("running", f"task a of run {other_id} is queued")
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    await stage.finish(worker, [item])
    assert (await _look(stage, run_id))[0] == "success"
    assert await stage.run_status(other_id) == "running"


async def test_a_task_that_gave_up_counts_as_failed_and_one_that_is_not_there_as_nothing(stage: Stage):
    failed, unknown = await _wait(stage, {"task": "z", "status": "failed"}), await _wait(stage, {"task": "y"})
    other_id = await _other(stage)
    await stage.work(await stage.register(), {"a": "failed"})
    assert (await _look(stage, failed))[0] == "success"
    assert await _look(stage, unknown) == ("running", f"run {other_id} has no such task")


async def test_its_timeout_bounds_it(stage: Stage):
    run_id = await _wait(stage, timeout_seconds=50)
    other_id = await _other(stage)
    assert await _look(stage, run_id, 40) == ("running", f"run {other_id} is running")
    assert (await _row(stage, run_id)).due_at == START + timedelta(seconds=44)
    await _look(stage, run_id, 9)
    assert (await _row(stage, run_id)).due_at == START + timedelta(seconds=50)
    await _look(stage, run_id, 1)
    row = await _row(stage, run_id)
    assert (row.status, row.error_type) == ("failed", "timeout")
    assert row.error == f"it did not end as success within 50 seconds: run {other_id} is running"


async def test_it_looks_less_often_the_longer_it_waits(stage: Stage):
    run_id = await _wait(stage)
    pauses = []
    for waited in (0, 5, 100, 3600):
        stage.clock.now = START + timedelta(seconds=waited)
        assert await stage.engine.serve_due() == 1
        assert await stage.engine.serve_due() == 0
        pauses.append(((await _row(stage, run_id)).due_at - stage.clock.now).total_seconds())
    assert pauses == [1, 1, 10, 30]


async def test_another_namespace_is_another_world(stage: Stage):
    run_id = await _wait(stage)
    defined = await stage.engine.apply_workflow(workflow(task("a"), name="other", namespace="else"))
    await stage.submit(defined.id, logical_at=START)
    await stage.work(await stage.register())
    assert await _look(stage, run_id) == ("running", "there is no such workflow")
    await stage.engine.cancel_run(run_id)
    assert await stage.statuses(run_id) == {"seen": "cancelled", "b": "cancelled"}


def test_a_run_that_would_wait_for_itself_is_refused():
    run = {"workflow": "me"}
    with pytest.raises(InvalidInput, match=r"tasks\[0\].wait.run.workflow: this run would wait for itself"):
        workflow(task("a", wait={"run": run}), name="me")
    workflow(task("a", wait={"run": run | {"logical_date": "2026-01-01T00:00:00Z"}}), name="me")


async def test_several_nodes_look_at_once(stage: Stage):
    """What ends while they look is seen by one of them, and ends once."""
    items = [task(f"t{number}", wait={"run": {"workflow": "other"}}) for number in range(30)]
    workflow_id = await stage.define(*items, name="waiters", max_active_runs=0)
    runs = [await stage.submit(workflow_id, logical_at=START) for _ in range(3)]
    await _other(stage)
    worker = await stage.register()
    async with open_node(stage.url, stage.clock) as other:

        async def look(engine: Any) -> None:
            while await engine.serve_due():
                pass

        for _ in range(3):
            stage.clock.advance(31)
            await stage.engine.renew(worker, [])
            items_left = await stage.claim(worker)
            await asyncio.gather(look(stage.engine), look(other.engine), stage.finish(worker, items_left))
        stage.clock.advance(31)
        await asyncio.gather(look(stage.engine), look(other.engine))
    assert {await stage.run_status(run_id) for run_id in runs} == {"success"}
