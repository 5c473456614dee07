"""`when`: conditions over parameters and what came before, wherever a task becomes ready."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.errors import InvalidInput
from rota.domain.job import parse_job
from rota.engine.submit import RunRequest
from tests.engine.stage import Stage, task


async def test_a_condition_over_params_decides_first_tasks(stage: Stage):
    workflow_id = await stage.define(
        task("a", when="params.day == 'monday'"), task("b", "a"), task("c", "a", trigger_rule="all_done")
    )
    worker = await stage.register()
    monday = await stage.submit(workflow_id, params={"day": "monday"})
    assert sorted(await stage.work(worker)) == ["a", "b", "c"]
    friday = await stage.submit(workflow_id, params={"day": "friday"})
    assert await stage.work(worker) == ["c"]
    assert await stage.statuses(friday) == {"a": "skipped", "b": "skipped", "c": "success"}
    assert {await stage.run_status(run_id) for run_id in (monday, friday)} == {"success"}
    (change,) = (item for item in await stage.history(await stage.task_run_id(friday, "a")) if item[1] == "skipped")
    assert change == ("queued", "skipped", {"reason": "when: params.day == 'monday' is false"})


@pytest.mark.parametrize(
    ("when", "status"),
    [
        ("tasks.a.output.rows > 2", "success"),
        ("{{ tasks.a.output.rows > 2 }}", "success"),
        ("tasks['a'].output.rows > 3", "skipped"),
        ("tasks.a.status == 'success' and not tasks.a.output.is_empty", "success"),
        ("tasks.a.output.names", "skipped"),
        ("'x' in tasks.a.output.names", "skipped"),
        ("tasks.a.output.missing is defined", "skipped"),
        ("run.id and ds == logical_date[:10] and workflow.name == 'flow'", "success"),
        ("(run.id | length) == 35", "skipped"),
    ],
)
async def test_a_condition_over_what_came_before(stage: Stage, when: str, status: str):
    run_id = await stage.start(task("a", output="json"), task("b", "a", when=when))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output={"rows": 3, "is_empty": False, "names": []})
    assert (await stage.statuses(run_id))["b"] == ("queued" if status == "success" else status)
    await stage.work(worker)
    assert (await stage.statuses(run_id))["b"] == status


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("params.missing == 1", "when: params.missing == 1: 'dict object' has no attribute 'missing'"),
        ("params.text", "when: params.text: expected true or false, not the text 'no': compare it with something"),
        ("1 / params.zero > 1", "when: 1 / params.zero > 1: division by zero"),
        ("params.text > 1", "when: params.text > 1: '>' not supported between instances of 'str' and 'int'"),
        ("params.text * 1000 == 'x'", "when: params.text * 1000 == 'x': * is for numbers"),
    ],
)
async def test_a_condition_that_has_no_value_fails_the_task_with_the_reason(stage: Stage, when: str, reason: str):
    workflow_id = await stage.define(task("a", when=when, retry_count=3), task("b", "a"))
    run_id = await stage.submit(workflow_id, params={"text": "no", "zero": 0})
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.error_type, row.error, row.attempt) == ("failed", "bad_task", reason, 0)
    assert (await stage.statuses(run_id))["b"] == "upstream_failed"
    assert await stage.run_status(run_id) == "failed"


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("params.day ==", "the expression cannot be read"),
        ("", "must not be empty"),
        ("   ", "cannot be read"),
        ("a }} {% for x in y %} {{ b", "the expression"),
        ("{{ params.a }} and {{ params.b }}", "the expression"),
        ("tasks.b.output", "tasks.b is not known there"),
        ("tasks.nobody.status == 'success'", "tasks.nobody is not known there"),
        ("parms.day", "there is no parms: an expression may use"),
        ("secrets.KEY == 'x'", "there is no secrets"),
        ("range(10)", "there is no range"),
        ("2 ** 3 | nothing", "No filter named"),
        ("(" * 500 + "1" + ")" * 500, "nested too deeply"),
    ],
)
async def test_what_can_be_known_is_refused_when_it_is_saved(stage: Stage, when: str, reason: str):
    with pytest.raises(InvalidInput) as caught:
        await stage.define(task("a", when=when), task("b", "a"))
    assert any(fault.field == "tasks[0].when" for fault in caught.value.errors), caught.value.errors
    assert reason in str(caught.value.errors)


async def test_a_run_of_which_every_task_is_skipped_ends_when_it_is_created(stage: Stage):
    run_id = await stage.start(task("a", when="false"), task("b", "a"))
    assert await stage.run_status(run_id) == "success"
    assert await stage.statuses(run_id) == {"a": "skipped", "b": "skipped"}


async def test_a_skip_goes_on_through_conditions_in_the_same_transaction(stage: Stage):
    names = [f"t{number}" for number in range(60)]
    items = [task(names[0], when="true")] + [
        task(name, names[place], trigger_rule="all_done", when="false" if place % 2 else "not true")
        for place, name in enumerate(names[1:])
    ]
    run_id = await stage.start(*items)
    worker = await stage.register()
    assert await stage.work(worker) == ["t0"]
    assert await stage.run_status(run_id) == "success"


async def test_runs_that_are_skipped_whole_give_their_turns_on(stage: Stage):
    workflow_id = await stage.define(task("a", when="params.is_wanted"), max_active_runs=1)
    first = await stage.submit(workflow_id, params={"is_wanted": True})
    requests = [RunRequest(workflow_id, params={"is_wanted": number == 29}) for number in range(30)]
    runs = [run.id for run in await stage.engine.submit_many(requests)]
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    await stage.finish(worker, [item])
    for _ in range(5):
        await stage.engine.reap_runs()
    (item,) = await stage.claim(worker)
    assert item.run_id == runs[-1]
    await stage.finish(worker, [item])
    assert {row.status for row in await stage.runs_of(workflow_id)} == {"success"}
    assert await stage.run_status(first) == "success"


async def test_a_retry_is_not_asked_again(stage: Stage):
    run_id = await stage.start(
        task("a", retry_count=1, retry_delay_seconds=5),
        task("b", "a", trigger_rule="always", when="tasks.a.status != 'success'", retry_count=2, retry_delay_seconds=5),
    )
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["b"]], "failed", error_type="exit_code")
    await stage.finish(worker, [items["a"]])
    stage.clock.advance(6)
    assert await stage.engine.release_due() == 1
    assert await stage.work(worker) == ["b"]
    assert await stage.statuses(run_id) == {"a": "success", "b": "success"}


async def test_a_failed_condition_can_be_tried_again_by_request(stage: Stage):
    run_id = await stage.start(
        task("a", retry_count=0, output="json"), task("b", "a", when="tasks.a.output.ok"), task("c", "b")
    )
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output={})
    assert await stage.statuses(run_id) == {"a": "success", "b": "failed", "c": "upstream_failed"}
    await stage.engine.retry_run(run_id)
    # Nothing has changed, so it fails once more, for the same reason.
    assert await stage.statuses(run_id) == {"a": "success", "b": "failed", "c": "upstream_failed"}
    assert await stage.run_status(run_id) == "failed"


async def test_a_cancelled_run_asks_the_conditions_of_its_clean_up(stage: Stage):
    workflow_id = await stage.define(
        task("a"), task("clean", when="false", teardown=True), task("sweep", teardown=True), max_active_runs=1
    )
    await stage.submit(workflow_id)
    waiting = await stage.submit(workflow_id)
    await stage.engine.cancel_run(waiting)
    assert await stage.statuses(waiting) == {"a": "cancelled", "clean": "skipped", "sweep": "queued"}


async def test_a_condition_among_many_runs_of_one_batch(stage: Stage):
    workflow_id = await stage.define(task("a", output="json"), task("b", "a", when="tasks.a.output"), max_active_runs=0)
    runs = [run.id for run in await stage.engine.submit_many([RunRequest(workflow_id)] * 30)]
    worker = await stage.register()
    items = {item.run_id: item for item in await stage.claim(worker)}
    for number, run_id in enumerate(runs):
        await stage.finish(worker, [items[str(run_id)]], output=bool(number % 2))
    statuses: list[Any] = [(await stage.statuses(str(run_id)))["b"] for run_id in runs]
    assert statuses == ["skipped", "queued"] * 15


async def test_a_job_may_have_a_condition(stage: Stage):
    document = {"command": "true", "when": "(ds | length) == 3"}
    (job,) = await stage.engine.create_jobs([parse_job(document, now=stage.clock.now)])
    assert job.run_id is not None
    assert await stage.run_status(job.run_id) == "success"
    assert await stage.statuses(job.run_id) == {"job": "skipped"}
    with pytest.raises(InvalidInput) as caught:
        await stage.engine.create_jobs([parse_job({**document, "when": "1 +"}, now=stage.clock.now)])
    assert caught.value.errors[0].field == "jobs[0].when"
