"""Tasks that start runs of other workflows, and end like them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from rota.domain.errors import Conflict, InvalidInput
from rota.domain.spec_parse import parse_workflow
from rota.domain.work import Finished
from rota.engine.core import MAX_DEPTH
from rota.engine.mark import Mark
from rota.engine.terminate import terminate_run
from rota.store.tables import workflow_runs
from tests.engine.stage import Stage, task


def call(name: str, *depends_on: str, to: str = "child", **fields: Any) -> dict[str, Any]:
    """A task that starts a run of another workflow."""
    return task(name, *depends_on, workflow=to, **fields)


async def child_rows(stage: Stage, run_id: str) -> list[Any]:
    """The runs that a run has started, the oldest first."""
    found = await stage.rows(
        select(workflow_runs).where(workflow_runs.c.parent_run_id == run_id).order_by(workflow_runs.c.created_at)
    )
    return list(found)


async def only_child(stage: Stage, run_id: str) -> Any:
    (row,) = await child_rows(stage, run_id)
    return row


async def start_called(stage: Stage, **fields: Any) -> tuple[str, str]:
    """A run that waits in its task `call`, before `b`, for a run of `child`, which has one task, `work`."""
    await stage.define(task("work", output="json"), name="child")
    run_id = await stage.start(call("call", **fields), task("b", "call"), name="parent")
    await stage.follow()
    return run_id, (await only_child(stage, run_id)).id


async def test_it_starts_a_run_and_ends_like_it(stage: Stage):
    await stage.define(task("work"), name="child")
    run_id = await stage.start(task("a"), call("call", "a"), task("b", "call"), name="parent")
    worker = await stage.register()
    (a,) = await stage.claim(worker)
    await stage.finish(worker, [a])
    child = await only_child(stage, run_id)
    parent = await stage.run_row(run_id)
    held = (await stage.task_rows(run_id))["call"]
    assert (held.status, held.holder, held.worker_id, held.attempt) == ("running", "run", None, 1)
    assert (child.trigger, child.depth, child.parent_task_run_id, child.parent_attempt) == ("workflow", 1, held.id, 1)
    assert child.logical_date == parent.logical_date
    assert await stage.work(worker) == ["work", "b"]
    assert await stage.run_status(child.id) == "success"
    assert await stage.run_status(run_id) == "success"
    assert [(old, new) for old, new, _ in await stage.history(held.id)] == [
        *(("pending", "queued"), ("queued", "running"), ("running", "success")),
    ]
    assert [(old, new) for old, new, _ in await stage.history(child.id)] == [
        *((None, "pending"), ("pending", "running"), ("running", "success")),
    ]


async def test_it_holds_no_slot(stage: Stage):
    await stage.add_pool("small", 1)
    await stage.define(task("work", pool="small"), name="child")
    run_id = await stage.start(call("call", pool="small"), name="parent", max_active_tasks=1)
    assert await stage.work(await stage.register()) == ["work"]
    assert await stage.run_status(run_id) == "success"


async def test_params_are_rendered_and_keep_their_types(stage: Stage):
    await stage.define(task("work", command="echo {{ params.number + 1 }}"), name="child")
    run_id = await stage.start(
        task("a", output="json"),
        call("call", "a", params={"number": "{{ tasks.a.output.n }}", "day": "on {{ ds }}", "list": [1, "{{ ds }}"]}),
        name="parent",
    )
    worker = await stage.register()
    (a,) = await stage.claim(worker)
    await stage.finish(worker, [a], output={"n": 41})
    await stage.follow()
    child = await only_child(stage, run_id)
    assert child.params == {"number": 41, "day": "on 2026-01-05", "list": [1, "2026-01-05"]}
    (work,) = await stage.claim(worker)
    assert work.spec["command"] == "echo 42"


async def test_what_its_last_tasks_left_is_passed_up(stage: Stage):
    await stage.define(
        task("first", output="json"),
        task("left", "first", output="json"),
        task("right", "first", output="json"),
        task("silent", "first"),
        task("clean", "left", teardown=True, output="json"),
        name="child",
    )
    run_id = await stage.start(call("call"), task("b", "call", command="echo {{ tasks.call.output.left.n }}"))
    worker = await stage.register()
    await stage.follow()
    while items := await stage.claim(worker):
        if items[0].task == "b":
            break
        for item in items:
            output = None if item.task == "silent" else {"n": item.task}
            await stage.finish(worker, [item], output=output)
        await stage.follow()
    assert items[0].spec["command"] == "echo left"
    row = (await stage.task_rows(run_id))["call"]
    assert row.output == {"left": {"n": "left"}, "right": {"n": "right"}}


async def test_no_output_where_none_is_wanted(stage: Stage):
    run_id, _child = await start_called(stage, output="none")
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output={"n": 1})
    await stage.follow()
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.output) == ("success", None)


async def test_too_much_output_fails_with_the_limit(stage: Stage):
    await stage.define(*(task(f"work{number}", output="json") for number in range(3)), name="child")
    run_id = await stage.start(call("call"))
    await stage.follow()
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output="x" * 400_000)
    await stage.follow()
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.error_type) == ("failed", "bad_output")
    assert "outputs of 1200006 characters of JSON and the limit is 1000000" in row.error


async def test_its_failure_is_the_tasks(stage: Stage):
    run_id, child_id = await start_called(stage)
    await stage.work(await stage.register(), {"work": "failed"})
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.error_type) == ("failed", "run_failed")
    assert row.error == f"run {child_id} of workflow child failed: work: it failed"
    assert await stage.statuses(run_id) == {"call": "failed", "b": "upstream_failed"}


async def test_each_retry_is_a_run_of_its_own(stage: Stage):
    run_id, first = await start_called(stage, retry_count=1, retry_delay_seconds=10)
    worker = await stage.register()
    await stage.work(worker, {"work": "failed"})
    assert (await stage.statuses(run_id))["call"] == "retrying"
    stage.clock.advance(11)
    await stage.engine.release_due()
    await stage.follow()
    rows = await child_rows(stage, run_id)
    assert [(row.parent_attempt, row.status) for row in rows] == [(1, "failed"), (2, "running")]
    # What becomes of the first one now concerns nobody.
    await stage.engine.retry_run(first)
    assert sorted(await stage.work(worker)) == ["b", "work", "work"]
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.attempt) == ("success", 2)
    assert await stage.run_status(first) == "success"


async def test_the_runs_of_two_tries_end_at_once(stage: Stage):
    run_id, first = await start_called(stage, retry_count=1, retry_delay_seconds=0)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed")
    await stage.follow()
    await stage.engine.retry_run(first)
    stage.engine._core.follow_up.work = None
    items = await stage.claim(worker)
    assert len(items) == 2
    await stage.finish(worker, items)
    assert await stage.engine.follow() == 2
    assert await stage.statuses(run_id) == {"call": "success", "b": "queued"}
    await stage.work(worker)


async def test_a_retry_by_request_is_a_new_run(stage: Stage):
    run_id, _child = await start_called(stage)
    worker = await stage.register()
    await stage.work(worker, {"work": "failed"})
    await stage.engine.retry_run(run_id)
    assert await stage.work(worker) == ["work", "b"]
    assert await stage.run_status(run_id) == "success"
    assert [row.status for row in await child_rows(stage, run_id)] == ["failed", "success"]


async def test_a_run_that_somebody_cancels_fails_the_task_for_good(stage: Stage):
    run_id, child_id = await start_called(stage, retry_count=3, retry_delay_seconds=0)
    await stage.engine.cancel_run(child_id, "not today")
    await stage.follow()
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.error_type, row.attempt) == ("failed", "run_cancelled", 1)
    assert row.error == f"run {child_id} of workflow child was cancelled: not today"


async def test_a_cancel_is_passed_down_and_teardown_runs(stage: Stage):
    await stage.define(task("work"), task("tidy", "work", teardown=True), name="grandchild")
    await stage.define(call("inner", to="grandchild"), task("wipe", "inner", teardown=True), name="child")
    run_id = await stage.start(call("call"), task("b", "call"), task("clean", "call", teardown=True), name="parent")
    await stage.follow()
    worker = await stage.register()
    (work,) = await stage.claim(worker)
    report = await stage.engine.cancel_run(run_id, "enough")
    assert (report.stopped, report.asked) == (1, 1)
    await stage.follow()
    child = await only_child(stage, run_id)
    grandchild = await only_child(stage, child.id)
    assert child.cancel_reason == grandchild.cancel_reason == "enough"
    # It lasts until the last of them has been cleaned up.
    assert await stage.run_status(run_id) == "running"
    await stage.finish(worker, [work], "cancelled")
    assert await stage.work(worker) == ["tidy", "wipe", "clean"]
    assert [await stage.run_status(item) for item in (grandchild.id, child.id, run_id)] == ["cancelled"] * 3
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.error_type) == ("cancelled", "cancelled")


async def test_a_cancel_of_the_task_run_is_passed_down(stage: Stage):
    run_id, child_id = await start_called(stage, retry_count=3)
    await stage.engine.cancel_task_run(await stage.task_run_id(run_id, "call"))
    await stage.follow()
    assert await stage.run_status(child_id) == "cancelled"
    assert await stage.statuses(run_id) == {"call": "cancelled", "b": "upstream_failed"}


async def test_a_cancel_reaches_a_run_that_waits_for_its_turn(stage: Stage):
    await stage.define(task("work"), name="child", max_active_runs=1)
    busy = await stage.submit((await stage.find("child")).id)
    run_id = await stage.start(call("call"), name="parent")
    await stage.follow()
    child = await only_child(stage, run_id)
    assert child.status == "pending"
    found = await stage.engine.explain_run(run_id)
    assert found.code == "max_active_runs"
    assert [holder.id for holder in found.holders] == [busy]
    await stage.engine.cancel_run(run_id)
    await stage.follow()
    assert await stage.run_status(child.id) == "cancelled"
    assert await stage.run_status(run_id) == "cancelled"
    await stage.work(await stage.register())


async def test_why_it_waits(stage: Stage):
    run_id, child_id = await start_called(stage)
    found = await stage.engine.explain_task_run(await stage.task_run_id(run_id, "call"))
    assert found.code == "waiting_for_run"
    assert [holder.id for holder in found.holders] == [child_id]
    assert "workflow child" in found.sentence


async def test_fire_and_forget(stage: Stage):
    run_id, child_id = await start_called(stage, wait_for_result=False)
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.output, row.attempt) == ("success", {"run_id": child_id}, 1)
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["b"]])
    assert await stage.run_status(run_id) == "success"
    await stage.finish(worker, [items["work"]], "failed")
    await stage.follow()
    assert await stage.run_status(run_id) == "success"


async def test_its_time_is_that_of_the_run(stage: Stage):
    run_id, child_id = await start_called(stage, timeout_seconds=60)
    stage.clock.advance(61)
    await stage.engine.reap_runs()
    await stage.follow()
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.error_type) == ("failed", "timeout")
    assert await stage.run_status(child_id) == "cancelled"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"to": "nowhere"}, "there is no workflow nowhere in namespace default: save it first"),
        ({"to": "empty"}, "workflow empty has no tasks yet: add tasks before it is run"),
        ({"params": {"n": "{{ params.missing }}"}}, "a template cannot be rendered: "),
        ({"params": {"n": "{{ [1, 1] | unique }}"}}, "params: cannot be written as JSON: "),
    ],
)
async def test_what_cannot_be_started_fails_with_the_reason(stage: Stage, fields: dict[str, Any], reason: str):
    empty = parse_workflow({"name": "empty"}, now=None, allow_empty=True)
    await stage.engine.create_workflow(empty)
    await stage.define(task("work"), name="child")
    run_id = await stage.start(call("call", retry_count=2, **fields), task("b"))
    row = (await stage.task_rows(run_id))["call"]
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert reason in row.error
    await stage.work(await stage.register())
    assert await stage.run_status(run_id) == "failed"
    assert await child_rows(stage, run_id) == []


async def test_another_namespace_is_out_of_reach(stage: Stage):
    await stage.define(task("work"), name="child", namespace="other")
    run_id = await stage.start(call("call"))
    row = (await stage.task_rows(run_id))["call"]
    assert "there is no workflow child in namespace default" in row.error


async def test_a_circle_is_refused_when_it_is_saved(stage: Stage):
    await stage.define(call("call", to="b"), name="a")
    await stage.define(task("x"), call("call", to="c"), name="b")
    with pytest.raises(InvalidInput) as caught:
        await stage.define(task("y"), task("z"), call("call", to="a"), name="c")
    (error,) = caught.value.errors
    assert error.field == "tasks[2].workflow"
    assert error.reason == "c → a → b → c: a workflow cannot start itself, alone or through others"
    with pytest.raises(InvalidInput, match="d → d"):
        await stage.define(call("call", to="d"), name="d")
    # What counts is what is saved now.
    await stage.define(task("x"), name="b")
    await stage.define(call("call", to="a"), name="c")
    # The same names elsewhere are other workflows.
    await stage.define(call("call", to="c"), name="b", namespace="other")


async def test_a_circle_that_was_saved_after_the_start_ends(stage: Stage):
    """Definitions change while runs are under way: a workflow that waits for itself would never end."""
    await stage.define(task("x"), name="b", max_active_runs=1)
    run_id = await stage.start(call("call", to="b"), name="a", max_active_runs=1)
    await stage.define(task("x"), name="a", max_active_runs=1)
    await stage.define(call("call", to="a"), name="b", max_active_runs=1)
    await stage.engine.cancel_run((await only_child(stage, run_id)).id)
    await stage.follow()
    await stage.engine.retry_run(run_id)
    await stage.follow()
    inner = (await child_rows(stage, run_id))[-1]
    row = (await stage.task_rows(inner.id))["call"]
    assert "workflow a has started this one" in row.error
    assert await stage.run_status(run_id) == "failed"


async def test_runs_start_one_another_only_so_deep(stage: Stage):
    await stage.define(task("work"), name=f"level{MAX_DEPTH + 1}")
    for depth in range(MAX_DEPTH, -1, -1):
        await stage.define(call("call", to=f"level{depth + 1}"), name=f"level{depth}")
    worker = await stage.register()
    deepest = await stage.submit((await stage.find("level1")).id)
    assert await stage.work(worker) == ["work"]
    assert await stage.run_status(deepest) == "success"
    too_deep = await stage.submit((await stage.find("level0")).id)
    assert await stage.work(worker) == []
    assert await stage.run_status(too_deep) == "failed"
    last = (await stage.runs_of((await stage.find(f"level{MAX_DEPTH}")).id))[-1]
    assert "50 times in a row at most" in (await stage.task_rows(last.id))["call"].error


async def test_a_workflow_is_not_deleted_while_its_end_is_awaited(stage: Stage):
    _run_id, child_id = await start_called(stage)
    stage.engine._core.follow_up.work = None
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    assert await stage.run_status(child_id) == "success"
    workflow_id = (await stage.find("child")).id
    with pytest.raises(Conflict):
        await stage.engine.delete_workflow(workflow_id)
    assert await stage.engine.prune(0) == 0
    await stage.follow()
    await stage.engine.delete_workflow(workflow_id)


async def test_what_nobody_has_followed_up_is_done_by_the_duties(stage: Stage):
    """The process that knew of it has died after its commit."""
    stage.engine._core.follow_up.work = None
    await stage.define(task("work"), name="child")
    run_id = await stage.start(call("call"))
    stage.engine._core.follow_up.take_workflows()
    assert (await only_child(stage, run_id)).status == "pending"
    await stage.engine.reap_runs()
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    await stage.engine.report(worker, [Finished(item.task_run_id, 1, "success")])
    assert await stage.run_status(run_id) == "running"
    assert await stage.engine.follow() == 1
    assert await stage.run_status(run_id) == "success"


async def test_it_may_have_a_condition_and_be_a_teardown(stage: Stage):
    await stage.define(task("work"), name="child")
    run_id = await stage.start(
        task("a"), call("no", "a", when="false"), call("yes", "a", when="true"), call("clean", "a", teardown=True)
    )
    assert await stage.work(await stage.register(), {"a": "success"}) == ["a", "work", "work"]
    assert await stage.statuses(run_id) == {"a": "success", "no": "skipped", "yes": "success", "clean": "success"}
    assert len(await child_rows(stage, run_id)) == 2


async def test_a_task_run_that_is_marked_leaves_no_run_behind(stage: Stage):
    run_id, child_id = await start_called(stage)
    stage.engine._core.follow_up.work = None
    await stage.engine.mark_task_run(await stage.task_run_id(run_id, "call"), Mark("success"))
    # It is found without anybody having been told.
    await stage.follow()
    assert await stage.run_status(child_id) == "cancelled"
    assert (await stage.statuses(run_id))["b"] == "queued"
    assert not (await stage.task_rows(run_id))["call"].is_calling
    await stage.work(await stage.register())
    assert await stage.run_status(run_id) == "success"


async def test_a_run_that_is_terminated_leaves_no_run_behind(stage: Stage):
    run_id, child_id = await start_called(stage)
    assert await stage.database.transact(lambda tx: terminate_run(stage.engine._core, tx, run_id, "now"))
    assert await stage.run_status(run_id) == "cancelled"
    await stage.follow()
    child = await stage.run_row(child_id)
    assert (child.status, child.cancel_reason) == ("cancelled", "now")


async def test_params_are_held_against_what_the_workflow_declares(stage: Stage):
    await stage.define(
        task("work"), name="child", params={"day": {"type": "string"}, "n": {"type": "integer", "default": 3}}
    )
    good = await stage.start(call("call", params={"day": "{{ ds }}"}), name="good")
    assert (await only_child(stage, good)).params == {"day": "2026-01-05", "n": 3}
    bad = await stage.start(call("call", params={"n": "{{ ds }}"}), call("other", params={"day": "x"}), name="bad")
    row = (await stage.task_rows(bad))["call"]
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert "params.day" in row.error
    await stage.work(await stage.register())
    assert await stage.statuses(bad) == {"call": "failed", "other": "success"}
