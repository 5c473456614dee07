"""What cannot be is refused with a typed error, on either database alike, and nothing is half-written."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from rota.domain.errors import InvalidInput, NotFound
from rota.domain.spec import WorkflowSpec
from rota.domain.work import Finished
from rota.engine.submit import RunRequest
from rota.store.tables import state_history, task_runs, workflow_runs, workflow_versions, workflows
from tests.engine.stage import Stage, task, workflow

NONSENSE = ["", "no-id", "a\0b", "\ud800", "x" * 100_000, "0" * 36, "'; DROP TABLE workflows; --"]


async def _count(stage: Stage, table) -> int:
    ((count,),) = await stage.rows(select(func.count()).select_from(table))
    return int(count)


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_ids_that_cannot_be_are_not_found(stage: Stage, nonsense: str):
    run_id = await stage.start(task("a"))
    engine = stage.engine
    for verb in (
        engine.cancel_run,
        engine.cancel_task_run,
        engine.retry_run,
        engine.retry_task_run,
        engine.explain_run,
        engine.explain_task_run,
        engine.explain_schedule,
        engine.drain_worker,
    ):
        with pytest.raises(NotFound):
            await verb(nonsense)
    with pytest.raises(NotFound):
        await engine.submit(RunRequest(nonsense))
    assert await stage.run_status(run_id) == "running"


async def test_ids_are_written_in_small_letters(stage: Stage):
    """Both databases agree on it: one that stores text cannot know that capitals mean the same."""
    run_id = await stage.start(task("a"))
    with pytest.raises(NotFound):
        await stage.engine.cancel_run(run_id.upper())


@pytest.mark.parametrize(
    ("tasks", "field"),
    [
        ([task("a", "b"), task("b", "c"), task("c", "a")], "tasks"),
        ([task("a", "a")], "tasks[0].depends_on"),
        ([task("a"), task("a")], "tasks[1].name"),
        ([task("a", "missing")], "tasks[0].depends_on"),
        ([], "tasks"),
        ([task("a\0")], "tasks[0].name"),
        ([task("a", command="echo \0")], "tasks[0].command"),
        ([task("a", command="echo \ud800")], "tasks[0].command"),
        ([task("a", retry_count=-1)], "tasks[0].retry_count"),
        ([task("a", timeout_seconds=-1)], "tasks[0].timeout_seconds"),
        ([task("a", timeout_seconds=float("nan"))], "tasks[0].timeout_seconds"),
        ([task("a", priority=10**30)], "tasks[0].priority"),
        ([task(f"t{number}") for number in range(10_001)], "tasks"),
    ],
)
async def test_a_bad_definition_leaves_nothing(stage: Stage, tasks: list, field: str):
    with pytest.raises(InvalidInput) as caught:
        await stage.engine.apply_workflow(workflow(*tasks))
    assert any(error.field.startswith(field) for error in caught.value.errors), caught.value.errors
    assert all(error.reason for error in caught.value.errors)
    assert await _count(stage, workflows) == 0


async def test_a_cycle_is_named(stage: Stage):
    with pytest.raises(InvalidInput, match=r"a.*b.*c.*a"):
        await stage.engine.apply_workflow(workflow(task("a", "c"), task("b", "a"), task("c", "b")))


@pytest.mark.parametrize("fields", [{"schedule_cron": "61 * * * *"}, {"schedule_cron": "0 0 31 2 *"}])
async def test_a_bad_schedule_leaves_nothing(stage: Stage, fields: dict):
    with pytest.raises(InvalidInput):
        await stage.engine.apply_workflow(workflow(task("a"), **fields))
    assert await _count(stage, workflows) == 0


async def test_a_definition_that_fails_half_way_leaves_nothing(stage: Stage):
    """The pool of the last task is missing: workflow, version and tasks before it are not kept either."""
    with pytest.raises(InvalidInput):
        await stage.engine.create_workflow(workflow(task("a"), task("b", "a", pool="missing")))
    assert (await _count(stage, workflows), await _count(stage, workflow_versions)) == (0, 0)


@pytest.mark.parametrize("text", ["\0", "a\0b\0\0", "\\u0000", "\\\0", "\ud800", "\x1b[31m", "\U0001f600", '"', "\\"])
async def test_odd_text_in_errors_and_outputs(stage: Stage, text: str):
    run_id = await stage.start(task("a"), task("b"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    output = {"text": text.replace("\ud800", "?"), text.replace("\ud800", "?"): [text.replace("\ud800", "?")]}
    reply = await stage.engine.report(
        worker,
        [
            Finished(items["a"].task_run_id, 1, "failed", error=text, error_type="exit_code"),
            Finished(items["b"].task_run_id, 1, "success", output=output),
        ],
    )
    assert [result.is_accepted for result in reply.results] == [True, True]
    rows = await stage.task_rows(run_id)
    assert rows["a"].error == text.replace("\0", "\ufffd").replace("\ud800", "?")
    assert rows["b"].output == output


async def test_long_text_is_cut(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed", error="é" * 1_000_000, error_type="x" * 500)
    row = (await stage.task_rows(run_id))["a"]
    assert row.error == "é" * 10_000
    assert len(row.error_type) <= 40


@pytest.mark.parametrize("exit_code", [2**31, -(2**31) - 1, 2**70, -9])
async def test_odd_exit_codes(stage: Stage, exit_code: int):
    run_id = await stage.start(task("a"), task("b"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    for name, status in (("a", "success"), ("b", "failed")):
        (result,) = await stage.finish(worker, [items[name]], status, exit_code=exit_code)
        assert result.is_accepted
    rows = await stage.task_rows(run_id)
    assert {row.exit_code for row in rows.values()} == {exit_code if exit_code == -9 else None}


@pytest.mark.parametrize("reason", ["\0", "\ud800", "x" * 100_000])
async def test_odd_reasons_for_a_cancel(stage: Stage, reason: str):
    run_id = await stage.start(task("a"))
    await stage.engine.cancel_run(run_id, reason)
    assert await stage.run_status(run_id) == "cancelled"


async def test_odd_params_and_notes(stage: Stage):
    workflow_id = await stage.define(task("a"))
    run_id = await stage.submit(workflow_id, params={"\0": "\0", "n": 2**63}, note="\0\ud800")
    run = await stage.run_row(run_id)
    assert run.params == {"\0": "\0", "n": 2**63}
    assert run.note == "\ufffd?"


async def test_what_cannot_be_written_as_json_is_refused_whole(stage: Stage):
    workflow_id = await stage.define(task("a"))
    for params in ({"x": object()}, {"x": "\ud800"}):
        with pytest.raises(InvalidInput):
            await stage.engine.submit(RunRequest(workflow_id, params=params))
    assert (await _count(stage, workflow_runs), await _count(stage, task_runs)) == (0, 0)
    assert await _count(stage, state_history) == 0


async def test_an_unknown_status_is_refused(stage: Stage):
    await stage.start(task("a"), task("b"))
    worker = await stage.register()
    items = await stage.claim(worker)
    reply = await stage.engine.report(
        worker,
        [Finished(items[0].task_run_id, 1, "completed!"), Finished(items[1].task_run_id, 1, "success")],
    )
    assert [(result.is_accepted, result.code) for result in reply.results] == [(False, "bad_status"), (True, "ok")]


async def test_ten_thousand_tasks_are_the_limit(stage: Stage):
    spec = workflow(*(task(f"t{number}") for number in range(10_000)))
    assert isinstance(spec, WorkflowSpec)
    assert (await stage.engine.apply_workflow(spec)).version == 1
