"""Workflows that start when runs of others end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rota.domain.errors import InvalidInput
from rota.engine.core import MAX_DEPTH
from rota.engine.engine import Engine
from rota.engine.submit import RunRequest
from tests.engine.stage import START, Stage, open_node, task


async def listen(stage: Stage, *statuses: str, name: str = "listener", to: str = "flow", **fields: Any) -> str:
    """A workflow that starts when runs of `to` end so."""
    return await stage.define(
        task("hear"), name=name, on=[{"workflow": to, "status": status} for status in statuses], **fields
    )


async def notes(stage: Stage, run_id: str) -> list[dict[str, Any]]:
    """What was noted of a run beside its moves."""
    return [details for _old, _new, details in await stage.history(run_id) if "event" in details]


@pytest.mark.parametrize(
    ("status", "heard"),
    [
        ("success", {"on_success", "on_done", "on_two"}),
        ("failed", {"on_failed", "on_done", "on_two"}),
        ("cancelled", {"on_cancelled", "on_done"}),
    ],
)
async def test_it_starts_once_when_a_run_ends_so(stage: Stage, status: str, heard: set[str]):
    ids = {f"on_{word}": await listen(stage, word, name=f"on_{word}") for word in ("success", "failed", "cancelled")}
    ids |= {"on_done": await listen(stage, "done", name="on_done")}
    ids |= {"on_two": await listen(stage, "success", "failed", name="on_two")}
    await listen(stage, "done", name="elsewhere", namespace="other")
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    if status == "cancelled":
        await stage.engine.cancel_run(run_id)
    await stage.work(worker, {"a": status})
    runs = {name: await stage.runs_of(workflow_id) for name, workflow_id in ids.items()}
    assert {name for name, rows in runs.items() if rows} == heard
    for name in heard:
        (row,) = runs[name]
        assert (row.trigger, row.parent_run_id, row.parent_task_run_id, row.depth) == ("run", run_id, None, 1)
        assert row.status == "success"
        assert row.params["run"]["status"] == status


async def test_it_gets_the_outputs_and_the_logical_date(stage: Stage):
    listener_id = await listen(stage, "success")
    flow_id = await stage.define(task("first", output="json"), task("last", "first", output="json"))
    run_id = await stage.submit(flow_id, logical_at=START.replace(year=2020))
    worker = await stage.register()
    for output in ({"n": 1}, {"n": 2}):
        await stage.finish(worker, await stage.claim(worker), output=output)
    await stage.follow()
    (row,) = await stage.runs_of(listener_id)
    date = "2020-01-05T12:00:00+00:00"
    about = {"id": run_id, "workflow": "flow", "status": "success", "logical_date": date}
    assert row.params == {"run": about, "outputs": {"last": {"n": 2}}}
    assert row.logical_date.isoformat() == date


async def test_it_gets_only_what_it_declares(stage: Stage):
    listener_id = await listen(stage, "success", params={"last": {"type": "object"}, "n": 7})
    strict_id = await listen(stage, "success", name="strict", params={"last": {"type": "string"}})
    run_id = await stage.start(task("last", output="json"))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output={"n": 2})
    await stage.follow()
    (row,) = await stage.runs_of(listener_id)
    assert row.params == {"last": {"n": 2}, "n": 7}
    assert await stage.runs_of(strict_id) == []
    (note,) = await notes(stage, run_id)
    assert (note["event"], note["workflow_id"]) == ("listener not started", strict_id)
    assert "params.last" in note["reason"]


async def test_what_is_too_large_is_told_to_nobody(stage: Stage):
    listener_id = await listen(stage, "success")
    run_id = await stage.start(*(task(f"work{number}", output="json") for number in range(3)))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output="x" * 400_000)
    await stage.follow()
    assert await stage.runs_of(listener_id) == []
    (note,) = await notes(stage, run_id)
    assert "the limit is 1000000" in note["reason"]


async def test_a_paused_or_empty_or_deleted_one_does_not_start(stage: Stage):
    paused_id = await listen(stage, "done", name="paused", is_active=False)
    deleted_id = await listen(stage, "done", name="deleted")
    changed_id = await listen(stage, "done", name="changed")
    await stage.define(task("hear"), name="changed")
    await stage.engine.delete_workflow(deleted_id)
    run_id = await stage.start(task("a"))
    await stage.work(await stage.register())
    assert not (await stage.run_row(run_id)).is_untold
    assert [await stage.runs_of(item) for item in (paused_id, deleted_id, changed_id)] == [[], [], []]


async def test_it_may_be_saved_before_the_other_and_after_its_start(stage: Stage):
    early_id = await listen(stage, "done", name="early")
    run_id = await stage.start(task("a"))
    late_id = await listen(stage, "done", name="late")
    await stage.work(await stage.register())
    assert [row.parent_run_id for item in (early_id, late_id) for row in await stage.runs_of(item)] == [run_id] * 2


async def test_a_run_that_ends_again_starts_each_once(stage: Stage):
    failed_id, success_id = await listen(stage, "failed", name="bad"), await listen(stage, "success", name="good")
    done_id = await listen(stage, "done", name="both")
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    for outcome in ("failed", "failed", "success"):
        await stage.work(worker, {"a": outcome})
        if outcome == "failed":
            await stage.engine.retry_run(run_id)
    statuses = [
        [row.params["run"]["status"] for row in await stage.runs_of(i)] for i in (failed_id, success_id, done_id)
    ]
    assert statuses == [["failed"], ["success"], ["failed"]]


async def test_it_waits_for_its_turn(stage: Stage):
    listener_id = await listen(stage, "done", max_active_runs=1)
    flow_id = await stage.define(task("a"))
    await stage.engine.submit_many([RunRequest(flow_id)] * 3)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    await stage.follow()
    assert sorted(row.status for row in await stage.runs_of(listener_id)) == ["pending", "pending", "running"]
    assert await stage.work(worker) == ["hear"] * 3


async def test_loops_are_refused_when_they_are_saved(stage: Stage):
    await listen(stage, "success", name="b", to="a")
    await listen(stage, "failed", name="c", to="b")
    with pytest.raises(InvalidInput) as caught:
        await stage.define(task("x"), name="a", on=[{"workflow": "elsewhere"}, {"workflow": "c"}])
    (error,) = caught.value.errors
    assert error.field == "on[1].workflow"
    assert error.reason == "a → b → c → a: a workflow cannot start itself, alone or through others"
    with pytest.raises(InvalidInput, match="d → d"):
        await listen(stage, "done", name="d", to="d")
    # Calls and ends together make a loop, too: the end of what it calls would start it again.
    with pytest.raises(InvalidInput, match="b → a → b"):
        await stage.define(task("x", workflow="a"), name="b", on=[{"workflow": "a"}])
    # Waiting for the end of one's caller is none.
    await stage.define(task("x", workflow="called"), name="a")
    await listen(stage, "done", name="called", to="elsewhere")
    await stage.define(task("x"), name="after", on=[{"workflow": "a"}, {"workflow": "called"}])


async def test_a_chain_of_ends_has_an_end(stage: Stage):
    for level in range(1, MAX_DEPTH + 2):
        await listen(stage, "done", name=f"level{level}", to=f"level{level - 1}")
    await stage.submit(await stage.define(task("a"), name="level0"))
    await stage.work(await stage.register())
    rows = [await stage.runs_of((await stage.find(f"level{level}")).id) for level in range(MAX_DEPTH + 2)]
    assert [len(found) for found in rows] == [1] * (MAX_DEPTH + 1) + [0]
    (note,) = await notes(stage, rows[MAX_DEPTH][0].id)
    assert "50 times in a row at most" in note["reason"]


async def test_nobody_listens_and_nothing_is_left_to_do(stage: Stage):
    run_id = await stage.start(task("a"))
    await listen(stage, "done", to="other")
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker))
    assert not (await stage.run_row(run_id)).is_untold
    assert await stage.engine.follow() == 0


@pytest.fixture
async def engines(stage: Stage) -> AsyncIterator[list[Engine]]:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(open_node(stage.url, stage.clock)) for _ in range(4)]
        for node in nodes:
            node.engine._core.follow_up.work = None
        yield [node.engine for node in nodes]


async def test_an_end_is_told_once_by_whoever_comes_first(stage: Stage, engines: list[Engine]):
    """The process that ended the runs has died before it told anybody."""
    stage.engine._core.follow_up.work = None
    listener_id = await listen(stage, "done", max_active_runs=0)
    child_id = await stage.define(task("hear"), name="child", max_active_runs=0)
    flow_id = await stage.define(task("call", workflow="child"), max_active_runs=0)
    worker = await stage.register()
    for turn in range(1, 6):
        await stage.engine.submit_many([RunRequest(flow_id)] * 20)
        while (await asyncio.gather(*(engine.follow() for engine in [*engines, stage.engine]))) != [0] * 5:
            pass
        await stage.finish(worker, await stage.claim(worker))
        for _round in range(2):
            await asyncio.gather(*(engine.follow() for engine in engines))
        assert len(await stage.runs_of(child_id)) == len(await stage.runs_of(listener_id)) == 20 * turn
        assert {row.status for row in await stage.runs_of(flow_id)} == {"success"}
        await stage.engine.reap_runs()
        await stage.finish(worker, await stage.claim(worker))
