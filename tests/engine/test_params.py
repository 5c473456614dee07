"""Parameters: held against what the version declares whenever a run is made, and filled in from defaults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from rota.domain.errors import InvalidInput
from rota.engine.submit import RunRequest
from rota.store.tables import workflow_versions
from tests.engine.stage import START, Stage, task, workflow

DECLARED = {
    "day": {"type": "string", "default": "{{ ds }}"},
    "size": {"type": "integer", "minimum": 1, "default": 3},
    "where": {"default": {"run": "{{ run.id }}", "of": ["{{ workflow.name }}", 7]}},
}


def _fields(error: pytest.ExceptionInfo[InvalidInput]) -> set[str]:
    return {fault.field for fault in error.value.errors}


async def test_defaults_are_filled_in_for_the_logical_date(stage: Stage):
    workflow_id = await stage.define(task("a", command="echo {{ params.day }} {{ params.size }}"), params=DECLARED)
    logical_at = datetime(2025, 3, 9, 22, 30, tzinfo=UTC)
    run_id = await stage.submit(workflow_id, logical_at=logical_at, params={"size": 5})
    assert (await stage.run_row(run_id)).params == {
        "day": "2025-03-09",
        "size": 5,
        "where": {"run": run_id, "of": ["flow", 7]},
    }
    (item,) = await stage.claim(await stage.register())
    assert item.spec["command"] == "echo 2025-03-09 5"


async def test_without_a_logical_date_it_is_the_databases_time(stage: Stage):
    run_id = await stage.start(task("a"), params=DECLARED)
    run = await stage.run_row(run_id)
    assert (run.logical_date, run.params["day"]) == (START, "2026-01-05")


async def test_what_is_given_is_taken_as_it_is(stage: Stage):
    run_id = await stage.submit(await stage.define(task("a"), params=DECLARED), params={"day": "{{ ds }}"})
    assert (await stage.run_row(run_id)).params["day"] == "{{ ds }}"


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"size": 0}, {"params.size"}),
        ({"size": "{{ 5 }}"}, {"params.size"}),
        ({"sise": 5, "day": None}, {"params.sise", "params.day"}),
    ],
)
async def test_a_value_that_does_not_fit_makes_no_run(stage: Stage, given: dict[str, Any], fields: set[str]):
    workflow_id = await stage.define(task("a"), params=DECLARED)
    with pytest.raises(InvalidInput) as refused:
        await stage.submit(workflow_id, params=given)
    assert _fields(refused) == fields
    if "sise" in given:
        assert 'did you mean "size"?' in str(refused.value.errors)
    told, made = await stage.engine.submit_many(
        [RunRequest(workflow_id, params=given, tells_refusal=True), RunRequest(workflow_id)]
    )
    assert told.id is None
    assert told.refusal is not None
    assert [run.id for run in await stage.runs_of(workflow_id)] == [made.id]


async def test_a_required_one_must_be_given(stage: Stage):
    workflow_id = await stage.define(task("a"), params={"day": {"type": "string"}})
    with pytest.raises(InvalidInput) as refused:
        await stage.submit(workflow_id)
    assert _fields(refused) == {"params.day"}
    assert await stage.submit(workflow_id, params={"day": "today"})


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"n": {"type": "integer", "default": "{{ ds }}"}}, "params.n.default"),
        ({"n": {"default": "{{ nothing.at.all }}"}}, "params.n.default"),
        ({"n": {"default": ["{{ ds"]}}, "params.n.default"),
        ({"n": {"default": "{{ workflow.items }}"}}, "params.n.default"),
        ({"n": "{% for x in [1] %}{% endfor %}"}, "params.n.default"),
    ],
)
async def test_a_default_that_can_have_no_value_is_refused_when_it_is_saved(
    stage: Stage, params: dict[str, Any], field: str
):
    with pytest.raises(InvalidInput) as refused:
        await stage.define(task("a"), params=params)
    assert _fields(refused) == {field}


def test_what_starts_by_itself_needs_defaults():
    with pytest.raises(InvalidInput) as refused:
        workflow(task("a"), params={"day": {"type": "string"}, "n": 1}, schedule_cron="* * * * *")
    assert _fields(refused) == {"params.day"}
    with pytest.raises(InvalidInput):
        workflow(task("a"), params={"day": {}}, kind="job", name="")


async def test_a_schedule_fills_in_each_tick(stage: Stage):
    params = {"minute": {"type": "integer", "default": "{{ logical_date[14:16] | int }}", "maximum": 2}}
    workflow_id = await stage.define(
        task("a"), params=params, schedule_cron="* * * * *", misfire="all", grace_seconds=600
    )
    stage.clock.advance(240)
    report = await stage.engine.fire()
    assert report.runs == 2
    assert [run.params for run in await stage.runs_of(workflow_id)] == [{"minute": 1}, {"minute": 2}]
    (row,) = await stage.schedule_rows(workflow_id)
    skips = [details for _old, new, details in await stage.history(row.id) if new == "skipped"]
    assert [skip["first_at"][11:16] for skip in skips] == ["12:03", "12:04"]
    assert "params.minute" in skips[0]["reason"]
    assert row.cursor_at == stage.clock.now


async def test_jobs_have_defaults_too(stage: Stage):
    spec = workflow(task("job"), params=DECLARED, kind="job", name="")
    created = await stage.engine.create_job(spec)
    (run,) = await stage.runs_of(created.id)
    assert run.params["day"] == "2026-01-05"
    bad = workflow(task("job"), params={"n": {"type": "integer", "default": "{{ ds }}"}}, kind="job", name="")
    with pytest.raises(InvalidInput) as refused:
        await stage.engine.create_jobs([spec, bad])
    assert _fields(refused) == {"jobs[1].params.n.default"}


async def test_nothing_is_declared_and_nothing_is_read(stage: Stage):
    run_id = await stage.submit(await stage.define(task("a")), params={"any": [1]})
    assert (await stage.run_row(run_id)).params == {"any": [1]}
    ((declared,),) = await stage.rows(select(workflow_versions.c.params))
    assert declared is None
