"""Task runs that the engine holds itself: started without a worker, ended once, at their time or before it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.domain.states import Holder
from rota.engine import gate
from rota.engine.core import Core, GateReport, ReadyTask
from rota.engine.held import HeldEnd, decide_held, finish_held
from rota.store.database import Transaction
from rota.store.gates import DueRow, Hold
from rota.store.outcomes import Landed, Outcome
from tests.engine.stage import Stage, task

SECONDS = 60.0
PAUSE = {"wait": {"seconds": 60}}


async def _start(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    return await gate.hold(
        transaction, [(item, Hold(item.row.id, Holder.APPROVAL, due_seconds=SECONDS)) for item in ready]
    )


async def _fail(core: Core, transaction: Transaction, due: Sequence[DueRow]) -> Sequence[Outcome]:
    ends = [HeldEnd(row.id, row.attempt, Holder.APPROVAL, "failed", "timeout", "nobody came") for row in due]
    return await decide_held(core, transaction, ends)


@pytest.fixture
async def stage(stage: Stage) -> Stage:
    """A stage on which every `wait` lasts until it is ended, and fails after a minute."""
    core = stage.engine._core
    core.starters = {"wait": _start}
    core.due_handlers = {Holder.APPROVAL: _fail}
    return stage


async def _end(stage: Stage, *ends: HeldEnd) -> list[Landed]:
    return await stage.database.transact(lambda tx: finish_held(stage.engine._core, tx, ends))


async def _start_run(stage: Stage, **fields: object) -> tuple[str, str]:
    run_id = await stage.start(task("a"), task("pause", "a", **PAUSE, **fields), task("b", "pause"))
    await stage.work(await stage.register())
    return run_id, await stage.task_run_id(run_id, "pause")


async def test_it_runs_without_a_worker_and_ends_once(stage: Stage):
    run_id, task_run_id = await _start_run(stage)
    row = (await stage.task_rows(run_id))["pause"]
    assert (row.status, row.holder, row.attempt, row.worker_id, row.lease_expires_at) == (
        *("running", "approval", 1),
        *(None, None),
    )
    assert await stage.claim(await stage.register()) == []
    end = HeldEnd(task_run_id, 1, Holder.APPROVAL, "success", output={"by": "ann"})
    assert len(await _end(stage, end, HeldEnd(task_run_id, 2, Holder.APPROVAL, "failed"))) == 1
    assert await _end(stage, end) == []
    row = (await stage.task_rows(run_id))["pause"]
    assert (row.status, row.holder, row.output, row.due_at) == ("success", None, {"by": "ann"}, None)
    assert await stage.work(await stage.register()) == ["b"]
    assert await stage.run_status(run_id) == "success"


async def test_another_holder_or_attempt_ends_nothing(stage: Stage):
    _run_id, task_run_id = await _start_run(stage)
    assert await _end(stage, HeldEnd(task_run_id, 1, Holder.WAIT, "success")) == []
    assert await _end(stage, HeldEnd(task_run_id, 2, Holder.APPROVAL, "success")) == []
    worker = await stage.register()
    results = await stage.engine.report(worker, [])
    assert results.results == ()


async def test_its_time_comes_and_its_retries_are_the_users(stage: Stage):
    run_id, task_run_id = await _start_run(stage, retry_count=1, retry_delay_seconds=10)
    due_at, _now = await stage.engine.find_next_due()
    assert due_at is not None
    assert (due_at - stage.clock.now).total_seconds() == SECONDS
    stage.clock.advance(SECONDS - 1)
    assert await stage.engine.serve_due() == 0
    stage.clock.advance(2)
    assert await stage.engine.serve_due() == 1
    assert (await stage.statuses(run_id))["pause"] == "retrying"
    stage.clock.advance(11)
    assert await stage.engine.release_due() == 1
    row = (await stage.task_rows(run_id))["pause"]
    assert (row.status, row.holder, row.attempt) == ("running", "approval", 2)
    stage.clock.advance(SECONDS + 1)
    assert await stage.engine.serve_due() == 1
    row = (await stage.task_rows(run_id))["pause"]
    assert (row.status, row.error_type, row.error) == ("failed", "timeout", "nobody came")
    assert await stage.run_status(run_id) == "failed"
    await stage.engine.retry_run(run_id)
    assert await stage.statuses(run_id) == {"a": "success", "pause": "running", "b": "pending"}
    assert len(await _end(stage, HeldEnd(task_run_id, 3, Holder.APPROVAL, "skipped"))) == 1
    assert await stage.statuses(run_id) == {"a": "success", "pause": "skipped", "b": "skipped"}


async def test_a_retry_without_delay_is_held_at_once(stage: Stage):
    run_id, task_run_id = await _start_run(stage, retry_count=1, retry_delay_seconds=0)
    assert len(await _end(stage, HeldEnd(task_run_id, 1, Holder.APPROVAL, "failed", "timeout"))) == 1
    row = (await stage.task_rows(run_id))["pause"]
    assert (row.status, row.holder, row.attempt) == ("running", "approval", 2)


async def test_a_cancel_ends_it_at_once(stage: Stage):
    run_id, task_run_id = await _start_run(stage)
    report = await stage.engine.cancel_run(run_id)
    assert (report.stopped, report.asked) == (2, 0)
    assert await stage.statuses(run_id) == {"a": "success", "pause": "cancelled", "b": "cancelled"}
    assert await stage.run_status(run_id) == "cancelled"
    assert await _end(stage, HeldEnd(task_run_id, 1, Holder.APPROVAL, "success")) == []


async def test_its_own_cancel_counts_as_a_failure_for_the_others(stage: Stage):
    run_id, task_run_id = await _start_run(stage)
    await stage.engine.cancel_task_run(task_run_id)
    assert await stage.statuses(run_id) == {"a": "success", "pause": "cancelled", "b": "upstream_failed"}


async def test_it_holds_no_slot_and_no_worker(stage: Stage):
    await stage.add_pool("small", 1)
    run_id = await stage.start(task("pause", pool="small", **PAUSE), task("a", pool="small"))
    assert await stage.work(await stage.register()) == ["a"]
    assert await stage.statuses(run_id) == {"pause": "running", "a": "success"}


async def test_a_run_of_held_tasks_is_on_its_way_when_it_is_created(stage: Stage):
    run_id = await stage.start(task("pause", when="true", **PAUSE))
    assert await stage.statuses(run_id) == {"pause": "running"}
    assert (await stage.engine.explain_run(run_id)).code == "held"
