"""Branch tasks: their output names who goes on, and the others are skipped at once."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine.submit import RunRequest
from tests.engine.stage import Stage, task

CHOOSE = {"branch": True, "output": "json"}


async def _choose(stage: Stage, *items: dict[str, Any], **outputs: Any) -> str:
    """Starts a run and ends the first task(s) with these outputs."""
    run_id = await stage.start(*items)
    worker = await stage.register()
    for item in await stage.claim(worker):
        await stage.finish(worker, [item], output=outputs.get(item.task))
    return run_id


@pytest.mark.parametrize(
    "action",
    [
        {"command": "echo a", "output": "text"},
        {"python": "m:f"},
        {"http": {"url": "http://localhost/"}},
        {"container": {"image": "i"}},
    ],
    ids=lambda action: next(iter(action)),
)
async def test_those_that_are_not_named_are_skipped_in_the_same_transaction(stage: Stage, action: dict[str, Any]):
    run_id = await stage.start(
        task("choose", branch=True, **action), task("a", "choose"), task("b", "choose"), task("below", "b")
    )
    worker = await stage.register(kinds=("shell", "python", "http", "container"))
    await stage.finish(worker, await stage.claim(worker), output="a")
    assert await stage.statuses(run_id) == {"choose": "success", "a": "queued", "b": "skipped", "below": "skipped"}
    (change,) = await stage.history(await stage.task_run_id(run_id, "b"))
    assert change == ("pending", "skipped", {"reason": "left out by choose"})
    assert (await stage.task_rows(run_id))["b"].error == "left out by choose"
    assert await stage.work(worker) == ["a"]
    assert await stage.run_status(run_id) == "success"


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ("none_failed_min_one_success", "success"),
        ("one_success", "success"),
        ("all_done", "success"),
        ("none_failed", "success"),
        ("all_success", "skipped"),
    ],
)
async def test_a_join_behind_the_ways(stage: Stage, rule: str, status: str):
    run_id = await _choose(
        stage,
        task("choose", **CHOOSE),
        *(task(name, "choose") for name in "abc"),
        task("join", "a", "b", "c", trigger_rule=rule),
        choose=["a", "b"],
    )
    await stage.work(await stage.register())
    states = await stage.statuses(run_id)
    assert states == {"choose": "success", "a": "success", "b": "success", "c": "skipped", "join": status}
    assert await stage.run_status(run_id) == "success"


async def test_a_join_that_hangs_on_the_branch_itself_goes_on_behind_the_chosen_way(stage: Stage):
    run_id = await _choose(
        stage,
        task("choose", **CHOOSE),
        task("a", "choose"),
        task("b", "choose"),
        task("join", "choose", "a", "b", trigger_rule="none_failed_min_one_success"),
        choose="a",
    )
    await stage.work(await stage.register())
    assert await stage.statuses(run_id) == {"choose": "success", "a": "success", "b": "skipped", "join": "success"}


async def test_nobody_goes_on_after_an_empty_list(stage: Stage):
    run_id = await _choose(
        stage,
        task("choose", **CHOOSE),
        task("a", "choose"),
        task("b", "choose", trigger_rule="all_done"),
        task("clean", "choose", "a", teardown=True),
        choose=[],
    )
    assert await stage.statuses(run_id) == {
        **{"choose": "success", "a": "skipped", "b": "skipped"},
        "clean": "queued",
    }


async def test_one_branch_is_enough_to_leave_a_task_out(stage: Stage):
    run_id = await _choose(
        stage,
        task("one", **CHOOSE),
        task("two", **CHOOSE),
        task("a", "one", "two"),
        task("b", "one", "two", trigger_rule="none_failed_min_one_success"),
        one=["a", "b"],
        two="a",
    )
    assert await stage.statuses(run_id) == {"one": "success", "two": "success", "a": "queued", "b": "skipped"}


async def test_what_has_started_is_not_called_back(stage: Stage):
    run_id = await stage.start(
        task("first"),
        task("choose", **CHOOSE),
        task("a", "choose"),
        task("early", "choose", "first", trigger_rule="one_success"),
        task("at-once", "choose", trigger_rule="always"),
    )
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["first"]])
    await stage.finish(worker, [items["choose"]], output="a")
    states = await stage.statuses(run_id)
    assert (states["a"], states["early"], states["at-once"]) == ("queued", "queued", "running")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("nobody", '"nobody" is no task right below choose: expected some of a, b'),
        (["a", "below"], '"below" is no task right below choose: expected some of a, b'),
        (None, "expected the name of a task or a list of names, not null"),
        ("", "it is empty: expected the names of tasks, or [] for none of them"),
        ({"go": "a"}, "expected the name of a task or a list of names, not an object"),
        ([1], "expected a list of the names of tasks, and it holds 1"),
    ],
)
async def test_an_output_that_names_nobody_fails_the_branch(stage: Stage, output: Any, reason: str):
    run_id = await stage.start(
        task("choose", **CHOOSE), task("a", "choose"), task("b", "choose"), task("below", "a", trigger_rule="all_done")
    )
    worker = await stage.register()
    (result,) = await stage.finish(worker, await stage.claim(worker), output=output)
    assert (result.is_accepted, result.code) == (True, "bad_output")
    row = (await stage.task_rows(run_id))["choose"]
    assert (row.status, row.error_type) == ("failed", "bad_output")
    assert row.error == f"the output of a branch names who goes on: {reason}"
    assert row.output == output
    assert await stage.work(worker) == ["below"]
    assert await stage.run_status(run_id) == "failed"


async def test_a_bad_choice_is_a_failure_like_others_and_can_be_retried(stage: Stage):
    run_id = await stage.start(
        task("choose", **CHOOSE, retry_count=1, retry_delay_seconds=0), task("a", "choose"), task("b", "choose")
    )
    worker = await stage.register()
    for _ in range(2):
        await stage.finish(worker, await stage.claim(worker), output="c")
    assert await stage.statuses(run_id) == {"choose": "failed", "a": "upstream_failed", "b": "upstream_failed"}
    await stage.engine.retry_run(run_id)
    await stage.finish(worker, await stage.claim(worker), output="b")
    assert await stage.statuses(run_id) == {"choose": "success", "a": "skipped", "b": "queued"}


async def test_a_choice_lands_once(stage: Stage):
    run_id = await stage.start(task("choose", **CHOOSE), task("a", "choose"), task("b", "choose"))
    worker = await stage.register()
    items = await stage.claim(worker)
    (first, second) = await stage.finish(worker, [*items, *items], output="a")
    (third,) = await stage.finish(worker, items, output="b")
    assert (first.code, second.code, third.code) == ("ok", "late", "late")
    assert await stage.statuses(run_id) == {"choose": "success", "a": "queued", "b": "skipped"}


async def test_many_branches_and_others_in_one_report(stage: Stage):
    workflow_id = await stage.define(
        task("choose", **CHOOSE), task("plain"), task("a", "choose"), task("b", "choose", "plain"), max_active_runs=0
    )
    requests = [RunRequest(workflow_id)] * 40
    runs = [str(run.id) for run in await stage.engine.submit_many(requests)]
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output="b")
    for run_id in runs:
        assert await stage.statuses(run_id) == {"choose": "success", "plain": "success", "a": "skipped", "b": "queued"}


async def test_a_branch_that_is_skipped_or_fails_chooses_nobody(stage: Stage):
    items = (
        task("choose", **CHOOSE),
        task("a", "choose", trigger_rule="all_done"),
        task("b", "choose", trigger_rule="none_failed"),
    )
    worker = await stage.register()
    skipped = await stage.start(*items)
    await stage.work(worker, {"choose": "skipped"})
    assert await stage.statuses(skipped) == {"choose": "skipped", "a": "success", "b": "success"}
    failed = await stage.start(*items)
    await stage.work(worker, {"choose": "failed"})
    assert await stage.statuses(failed) == {"choose": "failed", "a": "success", "b": "upstream_failed"}


async def test_a_retry_does_not_bring_back_what_was_left_out(stage: Stage):
    run_id = await stage.start(
        task("choose", **CHOOSE),
        task("other"),
        task("a", "choose", "other"),
        task("b", "choose", "other"),
        task("below", "b", trigger_rule="all_done"),
    )
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["other"]], "failed", error_type="exit_code")
    await stage.finish(worker, [items["choose"]], output="a")
    await stage.work(worker)
    assert (await stage.statuses(run_id))["b"] == "upstream_failed"
    await stage.engine.retry_run(run_id)
    assert (await stage.statuses(run_id))["b"] == "skipped"
    await stage.work(worker)
    states = await stage.statuses(run_id)
    assert (states["a"], states["b"], states["below"]) == ("success", "skipped", "success")
    assert await stage.run_status(run_id) == "success"


async def test_a_cancelled_run_takes_the_choice_without_starting_anything(stage: Stage):
    run_id = await stage.start(
        task("choose", **CHOOSE), task("a", "choose"), task("b", "choose"), task("clean", "choose", teardown=True)
    )
    worker = await stage.register()
    items = await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    await stage.finish(worker, items, output="a")
    states = await stage.statuses(run_id)
    assert states == {"choose": "success", "a": "cancelled", "b": "cancelled", "clean": "queued"}
    await stage.work(worker)
    assert await stage.run_status(run_id) == "cancelled"


async def test_a_lost_branch_is_tried_again(stage: Stage):
    run_id = await stage.start(task("choose", **CHOOSE), task("a", "choose"), task("b", "choose"))
    worker = await stage.register()
    late = await stage.claim(worker)
    stage.clock.advance(31)
    assert await stage.engine.reap_attempts() == 1
    other = await stage.register()
    items = await stage.claim(other)
    (refused,) = await stage.finish(worker, late, output="a")
    assert refused.code == "late"
    await stage.finish(other, items, output="b")
    assert await stage.statuses(run_id) == {"choose": "success", "a": "skipped", "b": "queued"}
