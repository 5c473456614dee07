"""Labels and notes: written when a run is made and changed afterwards, and always found in both places."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from rota.domain.errors import InvalidInput, NotFound
from rota.domain.ids import make_uuid7
from rota.engine.annotate import Annotation
from rota.engine.submit import RunRequest
from rota.store.tables_links import run_labels
from tests.engine.stage import Stage, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def _labels(stage: Stage, run_id: str) -> dict[str, str]:
    """The labels of a run, which are kept twice."""
    kept = (await stage.run_row(run_id)).labels or {}
    rows = await stage.rows(select(run_labels).where(run_labels.c.run_id == run_id))
    assert {row.key: row.value for row in rows} == kept
    assert {row.namespace for row in rows} <= {"default"}
    return dict(kept)


async def test_a_run_is_made_with_labels(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    requests = [RunRequest(workflow_id, labels={"n": str(number), "all": ""}) for number in range(3)]
    runs = await stage.engine.submit_many([*requests, RunRequest(workflow_id)])
    found = [await _labels(stage, str(run.id)) for run in runs]
    assert found == [*({"n": str(number), "all": ""} for number in range(3)), {}]


async def test_they_are_changed_one_by_one_and_the_history_says_who(stage: Stage):
    run_id = await stage.submit(await stage.define(task("a")), labels={"team": "data", "why": "test"}, note="first")
    await stage.work(await stage.register())
    await stage.engine.annotate_run(run_id, Annotation(labels={"team": "ops", "why": None, "new": "x"}), "ann")
    assert await _labels(stage, run_id) == {"team": "ops", "new": "x"}
    await stage.engine.annotate_run(run_id, Annotation(note="second"))
    assert (await stage.run_row(run_id)).note == "second"
    assert await _labels(stage, run_id) == {"team": "ops", "new": "x"}
    before = len(await stage.history(run_id))
    await stage.engine.annotate_run(run_id, Annotation(note="second", labels={"team": "ops"}))
    events = [entry for entry in await stage.history(run_id) if "event" in entry[2]]
    assert len(await stage.history(run_id)) == before
    assert [(old, new, entry["by"]) for old, new, entry in events[:1]] == [("success", "success", "ann")]
    await stage.engine.annotate_run(run_id, Annotation(labels={"team": None, "new": None}))
    assert await _labels(stage, run_id) == {}


@pytest.mark.parametrize(
    "labels",
    [
        {"": "x"},
        {"a:b": "x"},
        {" a": "x"},
        {"a\0": "x"},
        {"a" * 64: "x"},
        {"a": "x" * 201},
        {"a": "\ud800"},
        {str(number): "" for number in range(51)},
    ],
)
async def test_a_label_that_cannot_be_is_refused_everywhere(stage: Stage, labels: dict[str, str]):
    run_id = await stage.submit(await stage.define(task("a")))
    with pytest.raises(InvalidInput) as refused:
        await stage.submit((await stage.find()).id, labels=labels)
    assert all(fault.field.startswith("labels") for fault in refused.value.errors)
    with pytest.raises(InvalidInput):
        await stage.engine.annotate_run(run_id, Annotation(labels=labels))
    assert await _labels(stage, run_id) == {}


async def test_deleting_the_workflow_takes_the_labels_with_it(stage: Stage):
    workflow_id = await stage.define(task("a"))
    await stage.submit(workflow_id, labels={"a": "b"})
    await stage.work(await stage.register())
    await stage.engine.delete_workflow(workflow_id)
    assert await stage.rows(select(run_labels)) == []
    with pytest.raises(NotFound):
        await stage.engine.annotate_run(UNKNOWN, Annotation(note="x"))
