"""Backfills over HTTP."""

from __future__ import annotations

import pytest

from tests.api.server import Server

RANGE = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T04:00:00Z"}


async def test_a_backfill_is_counted_made_and_followed(server: Server):
    await server.define({"name": "a", "command": "true"}, schedule_cron="0 * * * *")
    dry = await server.call("POST", "/workflows/flow/backfills", {**RANGE, "dry_run": True})
    assert (dry.status, dry.json["count"], dry.json["last_at"]) == (200, 5, "2020-01-01T04:00:00Z")
    made = await server.call("POST", "/workflows/flow/backfills", {**RANGE, "max_active": 2, "direction": "backward"})
    assert (made.status, made.json["status"], made.json["tick_count"]) == (201, "running", 5)
    path = f"/backfills/{made.json['id']}"
    await server.engine.step_backfills()
    found = await server.get(path)
    assert (found["created_count"], found["runs"]) == (2, {"running": 2})
    assert (await server.get("/workflows/flow/backfills"))["items"] == [found]
    runs = await server.get("/workflow-runs?trigger=backfill")
    assert [run["backfill_id"] for run in runs["items"]] == [found["id"]] * 2
    assert (await server.get("/workflow-runs?trigger=schedule"))["items"] == []
    assert (await server.call("POST", f"{path}/pause")).json["status"] == "paused"
    assert (await server.call("POST", f"{path}/resume")).json["status"] == "running"
    ended = await server.call("POST", f"{path}/cancel")
    assert (ended.json["status"], ended.json["runs"]) == ("cancelled", {"cancelled": 2})
    assert (await server.call("POST", f"{path}/resume")).status == 409
    assert (await server.call("POST", f"{path}/stop")).status == 422
    assert (await server.call("GET", f"{path}?namespace=elsewhere")).status == 404


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"from": "2020-01-01T00:00:00"}, "from"),
        ({"to": "2999-01-01T00:00:00Z"}, "to"),
        ({"to": "2019-01-01T00:00:00Z"}, "to"),
        ({"from": "1980-01-01T00:00:00Z"}, "max_runs"),
        ({"max_active": 0}, "max_active"),
        ({"direction": "sideways"}, "direction"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_is_refused(server: Server, fields: dict, field: str):
    await server.define({"name": "a", "command": "true"}, schedule_cron="0 * * * *")
    answer = await server.call("POST", "/workflows/flow/backfills", {**RANGE, **fields})
    assert (answer.status, [error["field"] for error in answer.json["errors"]]) == (422, [field])
    assert (await server.get("/workflows/flow/backfills"))["items"] == []
