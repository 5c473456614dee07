"""Mapped tasks: one task run for each item, and the mapped task lasts exactly as long as these."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.errors import Conflict, InvalidInput
from rota.domain.work import Assignment
from rota.engine import expand
from rota.engine.submit import RunRequest
from tests.engine.stage import LEASE_SECONDS, Stage, settle, task

EACH = {"command": "echo {{ item }}", "output": "json"}


async def _map(stage: Stage, value: Any, *items: dict[str, Any], **fields: Any) -> str:
    """A run whose task `list` has left this output, and whose task `each` is mapped over it."""
    each = task("each", "list", map_over="tasks.list.output", **{**EACH, **fields})
    run_id = await stage.start(task("list", output="json"), each, *items)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output=value)
    return run_id


def _by_index(items: list[Assignment]) -> dict[int, Assignment]:
    return {item.map_index: item for item in items}


async def test_each_item_runs_and_the_list_of_results_goes_on_in_their_order(stage: Stage):
    run_id = await _map(
        stage,
        ["a b", {"n": 1}, None, 3],
        task("sum", "each", command="echo {{ tasks.each.output }}"),
        command=["do", "{{ item }}", "{{ map_index }}"],
    )
    assert await stage.statuses(run_id) == {"list": "success", "each": "running", "sum": "pending"}
    rows = await stage.item_rows(run_id, "each")
    assert [(row.map_index, row.item, row.status) for row in rows] == [
        *((0, "a b", "queued"), (1, {"n": 1}, "queued"), (2, None, "queued"), (3, 3, "queued")),
    ]
    worker = await stage.register()
    items = await stage.claim(worker)
    assert [item.map_index for item in items] == [0, 1, 2, 3]
    assert [item.spec["command"] for item in items] == [
        *(["do", "a b", "0"], ["do", '{"n":1}', "1"], ["do", "null", "2"], ["do", "3", "3"]),
    ]
    assert len({item.idempotency_key for item in items}) == 4
    for item in reversed(items):
        assert (await stage.statuses(run_id))["each"] == "running"
        output = None if item.map_index == 2 else {"index": item.map_index}
        await stage.finish(worker, [item], output=output)
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.output) == ("success", [{"index": 0}, {"index": 1}, None, {"index": 3}])
    (last,) = await stage.claim(worker)
    assert last.spec["command"] == """echo '[{"index":0},{"index":1},null,{"index":3}]'"""
    await stage.finish(worker, [last])
    assert await stage.run_status(run_id) == "success"
    run = await stage.run_row(run_id)
    assert (run.task_count, run.remaining, run.failed_count) == (3, 0, 0)


@pytest.mark.parametrize(
    ("map_over", "items"),
    [
        ("params.names", ["x", "y"]),
        ("{{ params.names }}", ["x", "y"]),
        ("params.names | unique", ["x", "y"]),
        ("params.table['k']", [1]),
        ([1, "two", {"three": 3}], [1, "two", {"three": 3}]),
        (["{{ params.names[0] }}", ["{{ params.table }}"], "plain"], ["x", [{"k": [1]}], "plain"]),
    ],
)
async def test_what_may_be_mapped_over(stage: Stage, map_over: Any, items: list[Any]):
    workflow_id = await stage.define(task("each", map_over=map_over, **EACH))
    run_id = await stage.submit(workflow_id, params={"names": ["x", "y"], "table": {"k": [1]}})
    assert [row.item for row in await stage.item_rows(run_id, "each")] == items
    await stage.work(await stage.register())
    assert await stage.run_status(run_id) == "success"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": 1}, "tasks.list.output: expected a list, not an object"),
        ("text", 'tasks.list.output: expected a list, not "text"'),
        (None, "tasks.list.output: expected a list, not null"),
        (7, "tasks.list.output: expected a list, not 7"),
        (
            [0] * 1001,
            "tasks.list.output: it has 1,001 items and map_limit is 1,000: raise map_limit, or map over less at once",
        ),
    ],
)
async def test_what_is_no_list_or_too_long_fails_the_task_with_the_reason(stage: Stage, value: Any, reason: str):
    run_id = await _map(stage, value, task("after", "each"), retry_count=3)
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error_type, row.error) == ("failed", "bad_task", f"map_over: {reason}")
    assert await stage.statuses(run_id) == {"list": "success", "each": "failed", "after": "upstream_failed"}
    assert await stage.run_status(run_id) == "failed"


@pytest.mark.parametrize(
    ("map_over", "reason"),
    [
        ("params.missing", "params.missing: 'dict object' has no attribute 'missing'"),
        ("params.n // 0", "params.n // 0: "),
        ("[params.missing]", "[params.missing]: "),
        ("params", "params: expected a list, not an object"),
        (["{{ params.missing }}"], "the list: 'dict object' has no attribute 'missing'"),
        (["{{ item }}"], "the list: 'item' is undefined"),
    ],
)
async def test_an_expression_without_a_value_fails_the_task(stage: Stage, map_over: Any, reason: str):
    run_id = await stage.start(task("each", map_over=map_over, **EACH))
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert row.error.startswith(f"map_over: {reason}")


@pytest.mark.parametrize(
    ("map_over", "reason"),
    [
        ("tasks.nobody.output", "tasks.nobody is not known there"),
        ("params.", "the expression cannot be read"),
        ("item", "there is no item"),
        (["{{ tasks.nobody.output }}"], "tasks.nobody is not known there"),
        (["{% for a in b %}{% endfor %}"], "the template is refused"),
    ],
)
async def test_what_can_be_known_is_refused_when_it_is_saved(stage: Stage, map_over: Any, reason: str):
    with pytest.raises(InvalidInput, match=reason) as caught:
        await stage.define(task("each", map_over=map_over, **EACH))
    assert caught.value.errors[0].field == "tasks[0].map_over"


@pytest.mark.parametrize("rule", ["all_success", "none_failed"])
async def test_an_empty_list_skips_the_task(stage: Stage, rule: str):
    run_id = await _map(stage, [], task("after", "each", trigger_rule=rule))
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error) == ("skipped", "map_over: tasks.list.output is empty")
    assert (await stage.statuses(run_id))["after"] == ("skipped" if rule == "all_success" else "queued")
    await stage.work(await stage.register())
    assert await stage.run_status(run_id) == "success"


async def test_a_failed_item_fails_the_task_after_all_have_ended(stage: Stage):
    run_id = await _map(stage, [1, 2, 3], task("after", "each"), task("handler", "each", trigger_rule="all_done"))
    worker = await stage.register()
    items = _by_index(await stage.claim(worker))
    await stage.finish(worker, [items[0]], "failed", error_type="exit_code")
    assert await stage.statuses(run_id) == {
        **{"list": "success", "each": "running"},
        **{"after": "pending", "handler": "pending"},
    }
    await stage.finish(worker, [items[1], items[2]])
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error_type, row.error) == ("failed", "item_failed", "of its 3 items 1 failed")
    assert await stage.work(worker) == ["handler"]
    assert await stage.run_status(run_id) == "failed"
    assert (await stage.run_row(run_id)).failed_count == 1


async def test_an_item_has_its_own_retries(stage: Stage):
    run_id = await _map(stage, [1, 2], retry_count=1, retry_delay_seconds=5)
    worker = await stage.register()
    items = _by_index(await stage.claim(worker))
    await stage.finish(worker, [items[0]], "failed", error_type="exit_code")
    await stage.finish(worker, [items[1]], output=2)
    assert [row.status for row in await stage.item_rows(run_id, "each")] == ["retrying", "success"]
    stage.clock.advance(6)
    assert await stage.engine.release_due() == 1
    (again,) = await stage.claim(worker)
    assert (again.map_index, again.try_number, again.spec["command"]) == (0, 2, "echo 1")
    await stage.finish(worker, [again], output=1)
    assert (await stage.task_rows(run_id))["each"].output == [1, 2]


async def test_an_item_survives_its_worker_and_is_poison_in_the_end(stage: Stage):
    run_id = await _map(stage, [1, 2], max_deliveries=2)
    worker = await stage.register()
    items = _by_index(await stage.claim(worker))
    await stage.finish(worker, [items[1]])
    for left in (1, 0):
        stage.clock.advance(LEASE_SECONDS + 1)
        assert await stage.engine.reap_attempts() == 1
        worker = await stage.register()
        assert len(await stage.claim(worker)) == left
    (lost, done) = await stage.item_rows(run_id, "each")
    assert (lost.status, lost.error_type, done.status) == ("failed", "poison", "success")
    assert await stage.run_status(run_id) == "failed"


async def test_at_most_so_many_items_are_on_their_way(stage: Stage):
    run_id = await _map(stage, list(range(7)), map_concurrency=3)
    worker = await stage.register()
    held = await stage.claim(worker)
    started = [item.map_index for item in held]
    while held:
        assert len(held) <= 3
        await stage.finish(worker, held[:1])
        fresh = await stage.claim(worker)
        started += [item.map_index for item in fresh]
        held = [*held[1:], *fresh]
    assert started == list(range(7))
    assert await stage.run_status(run_id) == "success"


async def test_a_retry_keeps_its_place_among_them(stage: Stage):
    run_id = await _map(stage, [1, 2, 3], map_concurrency=1, retry_count=1, retry_delay_seconds=5)
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed", error_type="exit_code")
    assert await stage.claim(worker) == []
    stage.clock.advance(6)
    await stage.engine.release_due()
    assert await stage.work(worker) == ["each"] * 3
    assert await stage.run_status(run_id) == "success"


async def test_a_large_map_gets_its_items_over_several_transactions(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 4)
    run_id = await _map(stage, list(range(10)))
    worker = await stage.register()
    assert await stage.work(worker) == ["each"] * 4
    assert (await stage.statuses(run_id))["each"] == "running"
    # Whoever starts anew goes on where the last one stopped.
    stage.node.engine = type(stage.engine)(stage.database, stage.engine._core.options)
    counts = [await stage.engine.expand_maps() for _ in range(3)]
    assert counts == [4, 2, 0]
    assert [row.item for row in await stage.item_rows(run_id, "each")] == list(range(10))
    assert await stage.work(worker) == ["each"] * 6
    assert await stage.run_status(run_id) == "success"


async def test_a_large_map_keeps_to_its_concurrency(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 4)
    run_id = await _map(stage, list(range(10)), map_concurrency=6)
    worker = await stage.register()
    assert len(await stage.claim(worker)) == 4
    assert await stage.engine.expand_maps() == 4
    items = await stage.claim(worker)
    assert len(items) == 2
    assert await stage.engine.expand_maps() == 2
    await stage.finish(worker, items)
    assert len(await stage.claim(worker)) == 2
    await settle(stage)
    assert await stage.run_status(run_id) == "success"


async def test_many_maps_share_what_one_transaction_creates(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 5)
    workflow_id = await stage.define(task("each", map_over="params.n", **EACH), max_active_runs=0)
    requests = [RunRequest(workflow_id, params={"n": [1, 2, 3]}) for _ in range(4)]
    runs = [str(run.id) for run in await stage.engine.submit_many(requests)]
    while await stage.engine.expand_maps():
        pass
    for run_id in runs:
        assert [row.item for row in await stage.item_rows(run_id, "each")] == [1, 2, 3]
    assert len(await stage.work(await stage.register())) == 12
    assert {row.status for row in await stage.runs_of(workflow_id)} == {"success"}


async def test_results_that_are_too_large_together_fail_the_task_and_stay_with_the_items(stage: Stage):
    run_id = await _map(stage, [1, 2])
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output="x" * 600_000)
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error_type, row.output) == ("failed", "bad_output", None)
    assert "have at least 1,200,004 bytes of JSON together and the limit is 1,000,000" in row.error
    assert [len(item.output) for item in await stage.item_rows(run_id, "each")] == [600_000] * 2


async def test_results_that_nobody_wants_are_not_put_together(stage: Stage):
    run_id = await _map(stage, [1, 2], output="none")
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), output="x" * 600_000)
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.output) == ("success", None)


async def test_a_map_over_the_results_of_a_map(stage: Stage):
    run_id = await _map(
        stage,
        [1, 2],
        task("next", "each", map_over="tasks.each.output", command="echo {{ item }} {{ tasks.each.output[0] }}"),
    )
    worker = await stage.register()
    for item in await stage.claim(worker):
        await stage.finish(worker, [item], output=item.map_index + 10)
    assert [item.spec["command"] for item in await stage.claim(worker)] == ["echo 10 10", "echo 11 10"]
    await settle(stage)
    assert await stage.run_status(run_id) == "success"


async def test_every_item_skipped_is_the_task_skipped(stage: Stage):
    run_id = await _map(stage, [1, 2], task("after", "each"))
    await stage.work(await stage.register(), {"each": "skipped"})
    assert await stage.statuses(run_id) == {"list": "success", "each": "skipped", "after": "skipped"}


async def test_a_condition_is_asked_once_for_the_whole(stage: Stage):
    items = (task("no", map_over=[1, 2], when="false", **EACH), task("yes", map_over=[1, 2], when="true", **EACH))
    run_id = await stage.start(*items)
    assert await stage.statuses(run_id) == {"no": "skipped", "yes": "running"}
    assert await stage.work(await stage.register()) == ["yes", "yes"]


async def test_clean_up_may_be_mapped(stage: Stage):
    run_id = await stage.start(task("a"), task("clean", "a", map_over=[1, 2], teardown=True, **EACH))
    worker = await stage.register()
    await stage.engine.cancel_run(run_id)
    assert await stage.work(worker, {"clean": "failed"}) == ["clean", "clean"]
    assert await stage.statuses(run_id) == {"a": "cancelled", "clean": "failed"}
    assert await stage.run_status(run_id) == "cancelled"


# --- cancel and retry -------------------------------------------------------------------------------------------


async def test_cancelling_an_item_fails_the_task_in_the_end(stage: Stage):
    run_id = await _map(stage, [1, 2, 3], map_concurrency=2)
    worker = await stage.register()
    (running,) = await stage.claim(worker, 1)
    rows = await stage.item_rows(run_id, "each")
    assert [row.status for row in rows] == ["running", "queued", "pending"]
    assert (await stage.engine.cancel_task_run(rows[1].id)).stopped == 1
    assert (await stage.engine.cancel_task_run(rows[0].id)).asked == 1
    assert [row.status for row in await stage.item_rows(run_id, "each")] == ["running", "cancelled", "queued"]
    await stage.finish(worker, [running], "cancelled")
    await stage.work(worker)
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error) == ("failed", "of its 3 items 2 were cancelled")


async def test_cancelling_the_task_cancels_its_items(stage: Stage):
    run_id = await _map(stage, [1, 2, 3], task("after", "each"), map_concurrency=2)
    worker = await stage.register()
    (running,) = await stage.claim(worker, 1)
    report = await stage.engine.cancel_task_run(await stage.task_run_id(run_id, "each"))
    assert (report.stopped, report.asked) == (2, 1)
    assert (await stage.statuses(run_id))["each"] == "running"
    await stage.finish(worker, [running], "cancelled")
    assert await stage.statuses(run_id) == {"list": "success", "each": "cancelled", "after": "upstream_failed"}
    assert {row.status for row in await stage.item_rows(run_id, "each")} == {"cancelled"}


async def test_cancelling_the_run_cancels_the_items(stage: Stage):
    run_id = await _map(stage, [1, 2, 3], task("after", "each"))
    worker = await stage.register()
    (running,) = await stage.claim(worker, 1)
    report = await stage.engine.cancel_run(run_id)
    assert (report.stopped, report.asked) == (3, 1)
    assert await stage.run_status(run_id) == "running"
    await stage.finish(worker, [running], "cancelled")
    assert await stage.statuses(run_id) == {"list": "success", "each": "cancelled", "after": "cancelled"}
    assert await stage.run_status(run_id) == "cancelled"


async def test_a_cancel_ends_the_creation_of_items(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 2)
    run_id = await _map(stage, list(range(6)))
    await stage.engine.cancel_run(run_id)
    assert (await stage.statuses(run_id))["each"] == "running"
    assert await stage.engine.expand_maps() == 4
    assert await stage.engine.expand_maps() == 0
    assert (await stage.statuses(run_id))["each"] == "cancelled"
    assert await stage.run_status(run_id) == "cancelled"


@pytest.mark.parametrize("map_concurrency", [None, 1])
@pytest.mark.parametrize("way", ["run", "task", "items"])
async def test_a_retry_tries_only_the_failed_items(stage: Stage, way: str, map_concurrency: int | None):
    run_id = await _map(stage, list(range(4)), task("after", "each"), map_concurrency=map_concurrency)
    worker = await stage.register()
    while items := await stage.claim(worker):
        for item in items:
            await stage.finish(
                worker, [item], "failed" if item.map_index % 2 else "success", output=f"first {item.map_index}"
            )
    assert await stage.statuses(run_id) == {"list": "success", "each": "failed", "after": "upstream_failed"}
    rows = await stage.item_rows(run_id, "each")
    if way == "run":
        await stage.engine.retry_run(run_id)
    elif way == "task":
        await stage.engine.retry_task_run(await stage.task_run_id(run_id, "each"))
    else:
        await stage.engine.retry_task_run(rows[1].id)
        await stage.engine.retry_task_run(rows[3].id)
    assert await stage.statuses(run_id) == {"list": "success", "each": "running", "after": "pending"}
    again: list[int] = []
    while items := await stage.claim(worker):
        assert map_concurrency is None or len(items) <= map_concurrency
        again += [item.map_index for item in items if item.task == "each"]
        for item in items:
            await stage.finish(worker, [item], output=f"again {item.map_index}")
    assert sorted(again) == [1, 3]
    assert (await stage.task_rows(run_id))["each"].output == ["first 0", "again 1", "first 2", "again 3"]
    assert await stage.run_status(run_id) == "success"


async def test_one_item_retried_of_two_that_failed_leaves_the_task_failed(stage: Stage):
    run_id = await _map(stage, [1, 2])
    worker = await stage.register()
    await stage.work(worker, {"each": "failed"})
    first, _second = await stage.item_rows(run_id, "each")
    await stage.engine.retry_task_run(first.id)
    assert await stage.work(worker) == ["each"]
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.error, row.attempt) == ("failed", "of its 2 items 1 failed", 2)
    assert await stage.run_status(run_id) == "failed"


async def test_an_item_can_be_retried_while_others_run(stage: Stage):
    run_id = await _map(stage, [1, 2])
    worker = await stage.register()
    items = _by_index(await stage.claim(worker))
    await stage.finish(worker, [items[0]], "failed", error_type="exit_code")
    await stage.engine.retry_task_run(items[0].task_run_id)
    (again,) = await stage.claim(worker)
    assert (again.map_index, again.attempt) == (0, 2)
    await stage.finish(worker, [again, items[1]], output=0)
    assert (await stage.task_rows(run_id))["each"].attempt == 1
    assert await stage.run_status(run_id) == "success"


async def test_a_retry_of_a_task_that_had_no_items_yet_looks_again(stage: Stage):
    run_id = await _map(stage, {"not": "a list"})
    await stage.engine.retry_run(run_id)
    assert (await stage.statuses(run_id))["each"] == "failed"
    assert await stage.item_rows(run_id, "each") == []
    assert await stage.run_status(run_id) == "failed"


async def test_a_retry_with_nothing_to_try_ends_at_once(stage: Stage):
    run_id = await _map(stage, [1, 2])
    worker = await stage.register()
    rows = await stage.item_rows(run_id, "each")
    await stage.engine.cancel_task_run(rows[0].id)
    await stage.work(worker)
    assert await stage.run_status(run_id) == "failed"
    await stage.engine.retry_run(run_id)
    row = (await stage.task_rows(run_id))["each"]
    assert (row.status, row.attempt, row.error) == ("failed", 2, "of its 2 items 1 were cancelled")
    with pytest.raises(Conflict):
        await stage.engine.retry_task_run(rows[0].id)


# --- kinds that no worker executes --------------------------------------------------------------------------------


async def test_waits_may_be_mapped(stage: Stage):
    run_id = await stage.start(task("pause", map_over=[5, 60], wait={"until": "{{ item }}"}), task("after", "pause"))
    assert {row.status for row in await stage.item_rows(run_id, "pause")} == {"failed"}
    assert await stage.statuses(run_id) == {"pause": "failed", "after": "upstream_failed"}
    run_id = await stage.start(
        task("pause", map_over=["2026-01-05T12:00:30Z", "2026-01-05T12:01:00Z"], wait={"until": "{{ item }}"}),
        task("after", "pause"),
    )
    assert [row.holder for row in await stage.item_rows(run_id, "pause")] == ["wait", "wait"]
    stage.clock.advance(31)
    assert await stage.engine.serve_due() == 1
    assert await stage.statuses(run_id) == {"pause": "running", "after": "pending"}
    stage.clock.advance(30)
    assert await stage.engine.serve_due() == 1
    assert await stage.work(await stage.register()) == ["after"]
