"""rerun: what is final is executed again in a new run; what is not executed again is taken over with its output."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from rota.domain.errors import Conflict, InvalidInput, NotFound
from rota.domain.ids import make_uuid7
from rota.engine.rerun import Rerun, RerunReport
from rota.store.tables import workflow_runs
from tests.engine.stage import START, Stage, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")
DIAMOND = (task("a", output="json"), task("b", "a"), task("c", "a"), task("d", "b", "c"))


async def _ended(stage: Stage, *items: dict[str, Any], script: dict[str, Any] | None = None, **fields: Any) -> str:
    """A run that is over."""
    run_id = await stage.start(*items, **fields)
    await stage.work(await stage.register(), script)
    return run_id


async def _again(stage: Stage, run_id: str, *tasks: str, **fields: Any) -> RerunReport:
    part: Any = "tasks" if tasks else "whole"
    return await stage.engine.rerun_run(run_id, Rerun(**{"part": part, "tasks": tasks, **fields}))


async def test_the_whole_run_again(stage: Stage):
    workflow_id = await stage.define(*DIAMOND)
    logical_at = START - timedelta(days=3)
    run_id = await stage.submit(
        workflow_id, logical_at=logical_at, params={"x": [1]}, labels={"team": "data"}, note="first"
    )
    worker = await stage.register()
    await stage.work(worker)
    report = await _again(stage, run_id, note="second")
    assert (report.is_new, report.queued, report.waiting) == (True, 1, 3)
    run = await stage.run_row(report.run_id)
    assert (run.rerun_of, run.trigger, run.logical_date, run.params) == (run_id, "rerun", logical_at, {"x": [1]})
    assert (run.labels, run.note, run.version_id) == (
        {"team": "data"},
        "second",
        (await stage.run_row(run_id)).version_id,
    )
    assert await stage.work(worker) == ["a", "b", "c", "d"]
    assert await stage.run_status(report.run_id) == "success"


async def test_a_subtree_of_what_had_succeeded(stage: Stage):
    run_id = await stage.start(*DIAMOND[:3], task("d", "b", "c", command="echo {{ tasks.a.output.n }}"))
    worker = await stage.register()
    (first,) = await stage.claim(worker)
    await stage.finish(worker, [first], output={"n": 7})
    await stage.work(worker)
    report = await _again(stage, run_id, "b")
    assert (report.queued, report.waiting) == (1, 1)
    assert await stage.statuses(report.run_id) == {"a": "success", "b": "queued", "c": "success", "d": "pending"}
    run = await stage.run_row(report.run_id)
    assert (run.status, run.task_count, run.remaining, run.failed_count) == ("running", 4, 2, 0)
    (b,) = await stage.claim(worker)
    await stage.finish(worker, [b])
    (d,) = await stage.claim(worker)
    assert d.spec["command"] == "echo 7"
    await stage.finish(worker, [d])
    assert await stage.run_status(report.run_id) == "success"
    taken = (await stage.task_rows(report.run_id))["a"]
    assert (taken.output, taken.attempt) == ({"n": 7}, 0)
    (move,) = await stage.history(taken.id)
    assert move == ("pending", "success", {"taken_over_from": await stage.task_run_id(run_id, "a")})
    assert await stage.run_status(run_id) == "success"


async def test_what_is_taken_over_decides_what_follows(stage: Stage):
    """Rules, conditions and clean-up go by the results that were taken over."""
    run_id = await _ended(
        stage,
        *(task("a", output="json"), task("f"), task("fix", "f", trigger_rule="one_failed"), task("s", when="false")),
        *(task("late", "a", "s", trigger_rule="none_failed"), task("clean", "late", "fix", teardown=True)),
        script={"f": "failed"},
    )
    assert await stage.run_status(run_id) == "success"
    report = await _again(stage, run_id, "late")
    assert await stage.statuses(report.run_id) == {
        **{"a": "success", "f": "failed", "fix": "success", "s": "skipped"},
        **{"late": "queued", "clean": "pending"},
    }
    assert (await stage.task_rows(report.run_id))["f"].error == "it failed"
    assert await stage.work(await stage.register()) == ["late", "clean"]
    assert await stage.run_status(report.run_id) == "success"


async def test_what_was_taken_over_may_end_the_rest_at_once(stage: Stage):
    run_id = await _ended(stage, task("f"), task("g", "f"), task("h", "g"), script={"f": "failed"})
    report = await _again(stage, run_id, "g")
    assert await stage.statuses(report.run_id) == {"f": "failed", "g": "upstream_failed", "h": "upstream_failed"}
    assert await stage.run_status(report.run_id) == "failed"


async def test_a_condition_is_asked_again(stage: Stage):
    run_id = await _ended(stage, task("a", output="json"), task("b", "a", when="tasks.a.status == 'success'"))
    report = await _again(stage, run_id, "b")
    assert await stage.statuses(report.run_id) == {"a": "success", "b": "queued"}
    assert await stage.work(await stage.register()) == ["b"]


async def test_a_branch_that_is_taken_over_chooses_as_it_did(stage: Stage):
    run_id = await stage.start(
        task("pick", branch=True), task("x", "pick"), task("y", "pick"), task("z", "y", trigger_rule="all_done")
    )
    worker = await stage.register()
    (pick,) = await stage.claim(worker)
    await stage.finish(worker, [pick], output="y")
    await stage.work(worker)
    assert (await stage.statuses(run_id))["x"] == "skipped"
    report = await _again(stage, run_id, "x", "y")
    assert await stage.statuses(report.run_id) == {"pick": "success", "x": "skipped", "y": "queued", "z": "pending"}
    assert await stage.work(worker) == ["y", "z"]


async def test_another_version(stage: Stage):
    """What the old run did not have is executed, and all that comes after it."""
    run_id = await _ended(stage, task("a"), task("b", "a"), task("c", "b"), task("e", "a"))
    await stage.define(task("a"), task("new", "a"), task("b", "new"), task("c", "b"), task("e", "a"))
    same = await _again(stage, run_id, "c")
    assert set(await stage.statuses(same.run_id)) == {"a", "b", "c", "e"}
    for version in ("current", 2):
        report = await _again(stage, run_id, "c", version=version)
        found = await stage.statuses(report.run_id)
        assert found == {"a": "success", "new": "queued", "b": "pending", "c": "pending", "e": "success"}
    whole = await _again(stage, run_id, version=1)
    assert set(await stage.statuses(whole.run_id)) == {"a", "b", "c", "e"}
    with pytest.raises(InvalidInput) as refused:
        await _again(stage, run_id, version=3)
    assert refused.value.errors[0].field == "version"
    await stage.work(await stage.register())


async def test_another_version_checks_the_parameters(stage: Stage):
    run_id = await _ended(stage, task("a"), params={"n": {"type": "integer", "default": 3}})
    await stage.define(task("a"), params={"n": {"type": "string", "default": "x"}})
    assert (await _again(stage, run_id)).is_new
    with pytest.raises(InvalidInput) as refused:
        await _again(stage, run_id, version="current")
    assert refused.value.errors[0].field == "params.n"


async def test_whichever_run_can_execute_it(stage: Stage):
    """Failed task runs are tried again in their own run; what has succeeded or been cancelled, in a new one."""
    run_id = await _ended(stage, task("a"), task("b", "a"), task("c", "b"), script={"b": "failed"})
    worker = await stage.register()
    report = await stage.engine.retry_or_rerun(run_id, Rerun("unfinished"))
    assert (report.run_id, report.is_new, report.queued, report.waiting) == (run_id, False, 1, 1)
    await stage.work(worker, {"b": "failed"})
    report = await stage.engine.retry_or_rerun(run_id, Rerun("tasks", ("b",)))
    assert (report.run_id, report.is_new) == (run_id, False)
    await stage.work(worker, {"c": "failed"})
    report = await stage.engine.retry_or_rerun(run_id, Rerun("tasks", ("b",)))
    assert (report.run_id != run_id, report.is_new) == (True, True)
    assert await stage.statuses(report.run_id) == {"a": "success", "b": "queued", "c": "pending"}
    with pytest.raises(Conflict, match="wait for its end"):
        await stage.engine.retry_or_rerun(report.run_id, Rerun("tasks", ("a",)))
    await stage.engine.cancel_run(report.run_id)
    third = await stage.engine.retry_or_rerun(report.run_id, Rerun("unfinished"))
    assert await stage.statuses(third.run_id) == {"a": "success", "b": "queued", "c": "pending"}
    await stage.work(worker)
    assert await stage.run_status(third.run_id) == "success"
    with pytest.raises(Conflict, match="only failed"):
        await stage.engine.retry_or_rerun(third.run_id, Rerun("unfinished"))
    with pytest.raises(Conflict, match="left to be done"):
        await stage.engine.rerun_run(third.run_id, Rerun("unfinished"))


async def test_what_cannot_be_repeated(stage: Stage):
    run_id = await stage.start(task("a"), task("beta", "a"))
    for call in (stage.engine.rerun_run, stage.engine.retry_or_rerun):
        with pytest.raises(Conflict):
            await call(run_id, Rerun())
        with pytest.raises(NotFound):
            await call(UNKNOWN, Rerun())
    await stage.work(await stage.register())
    with pytest.raises(InvalidInput) as refused:
        await _again(stage, run_id, "a", "betta")
    assert [fault.field for fault in refused.value.errors] == ["tasks[1]"]
    assert 'did you mean "beta"?' in refused.value.errors[0].reason
    ((count,),) = await stage.rows(select(func.count()).select_from(workflow_runs))
    assert count == 1


async def test_a_tick_is_made_once_whatever_is_repeated(stage: Stage):
    workflow_id = await stage.define(task("a"), schedule_cron="* * * * *")
    stage.clock.advance(60)
    await stage.engine.fire()
    await stage.work(await stage.register())
    (run,) = await stage.runs_of(workflow_id)
    for _ in range(2):
        report = await _again(stage, run.id)
        assert (await stage.run_row(report.run_id)).schedule_id is None
    assert (await stage.engine.fire()).runs == 0
    assert len(await stage.runs_of(workflow_id)) == 3


async def test_the_whole_waits_for_its_turn_and_a_part_goes_on_at_once(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", "a"), max_active_runs=1)
    run_id = await stage.submit(workflow_id)
    worker = await stage.register()
    await stage.work(worker)
    active = await stage.submit(workflow_id)
    whole = await _again(stage, run_id)
    part = await _again(stage, run_id, "b")
    assert [await stage.run_status(item) for item in (active, whole.run_id, part.run_id)] == [
        *("running", "pending"),
        "running",
    ]
    await stage.work(worker)
    assert await stage.run_status(whole.run_id) == "success"


async def test_a_large_run_is_taken_over(stage: Stage):
    names = [f"t{number}" for number in range(2_500)]
    run_id = await _ended(stage, *map(task, names), task("end", *names))
    report = await _again(stage, run_id, "end")
    assert (report.queued, report.waiting) == (1, 0)
    assert (await stage.run_row(report.run_id)).remaining == 1
    assert await stage.work(await stage.register()) == ["end"]


async def test_the_failed_items_of_a_mapped_task_stay_in_their_run(stage: Stage):
    run_id = await stage.start(task("each", map_over=[1, 2, 3]), task("end", "each"))
    worker = await stage.register()
    first, *others = await stage.claim(worker)
    await stage.finish(worker, [first], "failed")
    await stage.finish(worker, others)
    report = await stage.engine.retry_or_rerun(run_id, Rerun("tasks", ("each",)))
    assert (report.run_id, report.is_new) == (run_id, False)
    assert await stage.work(worker) == ["each", "end"]
    assert await stage.run_status(run_id) == "success"
    report = await _again(stage, run_id, "end")
    assert await stage.work(worker) == ["end"]
    assert await stage.run_status(report.run_id) == "success"
