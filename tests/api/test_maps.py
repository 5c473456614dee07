"""Mapped tasks over HTTP: their items are listed, explained, cancelled and retried like other task runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.server import Server

EACH = {"name": "each", "map_over": "params.names", "command": "echo {{ item }}", "output": "json"}


async def _list(server: Server, run_id: str, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get(f"/task-runs?run_id={run_id}{query}"))["items"]
    return sorted(found, key=lambda row: row["map_index"])


async def test_items_are_task_runs_with_an_index(server: Server):
    await server.define({**EACH, "map_concurrency": 2}, {"name": "other"})
    run = await server.trigger(params={"names": ["a", "b", "c"]})
    rows = await _list(server, run["id"], "&task=each")
    assert [(row["map_index"], row["status"]) for row in rows] == [
        *((-1, "running"), (0, "queued"), (1, "queued"), (2, "pending")),
    ]
    detail = await server.get(f"/workflow-runs/{run['id']}")
    assert detail["task_count"] == 2
    assert [(row["task"], row["map_index"]) for row in detail["task_runs"]] == [
        *(("each", -1), ("each", 0), ("each", 1), ("each", 2), ("other", -1)),
    ]
    assert [row["task"] for row in await _list(server, run["id"], "&map_index=-1&task=other")] == ["other"]
    (third,) = await _list(server, run["id"], "&map_index=2")
    assert (await server.get(f"/task-runs/{third['id']}"))["item"] == "c"
    explained = await server.get(f"/task-runs/{third['id']}/explain")
    assert explained["code"] == "map_concurrency"
    assert explained["sentence"] == "2 items of its task are on their way, and 2 may be"
    whole = await server.get(f"/task-runs/{rows[0]['id']}/explain")
    assert whole["code"] == "waiting_for_items"
    assert whole["sentence"] == "3 of its 3 items have not ended; 1 wait for others of them"


async def test_an_item_is_cancelled_and_its_task_retried(server: Server):
    await server.define(EACH)
    run = await server.trigger(params={"names": ["a", "b", "c"]})
    items = {item.map_index: item for item in await server.take(3)}
    report = await server.post(f"/task-runs/{items[0].task_run_id}/cancel")
    assert (report["stopped"], report["asked"]) == (0, 1)
    await server.finish(items[0], "success", output="A")
    await server.finish(items[1], "failed", error_type="exit_code")
    await server.finish(items[2], "success", output="C")
    (whole,) = await _list(server, run["id"], "&map_index=-1")
    assert (whole["status"], whole["error_type"], whole["error"]) == (
        *("failed", "item_failed"),
        "of its 3 items 1 failed",
    )
    retried = await server.post(f"/workflow-runs/{run['id']}/retry", {"tasks": ["each"]})
    assert (retried["status"], retried["queued"]) == ("running", 2)
    (again,) = await server.take()
    assert again.map_index == 1
    await server.finish(again, "success", output="B")
    assert (await server.get(f"/task-runs/{whole['id']}"))["output"] == ["A", "B", "C"]
    assert (await server.get(f"/workflow-runs/{run['id']}"))["status"] == "success"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"map_limit": 100_001}, "tasks[0].map_limit"),
        ({"map_limit": 0}, "tasks[0].map_limit"),
        ({"map_concurrency": -1}, "tasks[0].map_concurrency"),
        ({"map_over": 3}, "tasks[0].map_over"),
        ({"map_over": "params.("}, "tasks[0].map_over"),
        ({"branch": True}, "tasks[0].branch"),
    ],
)
async def test_what_cannot_be_mapped_is_refused(server: Server, fields: dict[str, Any], field: str):
    document = {"name": "flow", "tasks": [{**EACH, **fields}, {"name": "b", "command": "true", "depends_on": ["each"]}]}
    answer = await server.call("POST", "/workflows", document)
    assert answer.status == 422
    assert field in [fault["field"] for fault in answer.json["errors"]]
