"""Schedules over HTTP."""

from __future__ import annotations

import pytest

from tests.api.server import Server

TASK = {"name": "a", "command": "true"}
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
HOURLY = {"schedule_cron": "0 * * * *"}
YEARLY = {"schedule_cron": "0 0 1 1 *", "timezone": "Europe/Riga"}
OVER = {"schedule_cron": "0 0 0 1 1 * 2000"}


async def _ids(server: Server, query: str = "") -> list[str]:
    return [item["id"] for item in (await server.get(f"/schedules{query}"))["items"]]


async def test_schedules_are_listed_by_state(server: Server):
    await server.define(TASK, schedules=[YEARLY, HOURLY, OVER])
    await server.define(TASK, name="other", schedules=[HOURLY])
    yearly, hourly, over = [item["id"] for item in (await server.get("/workflows/flow/schedules"))["items"]]
    page = await server.get("/schedules?workflow=flow")
    assert (page["total"], {item["workflow"] for item in page["items"]}) == (3, {"flow"})
    assert await _ids(server, "?state=upcoming&workflow=flow") == [hourly, yearly]
    assert await _ids(server, "?state=finished") == [over]
    assert await _ids(server, "?state=paused") == await _ids(server, "?state=missed") == []
    assert await _ids(server, "?state=late") == []
    assert len(await _ids(server)) == 4
    assert (await server.call("GET", "/schedules?state=sleepy")).status == 422


async def test_one_schedule_is_paused_and_resumed(server: Server):
    await server.define(TASK, schedules=[HOURLY, YEARLY])
    hourly, yearly = [item["id"] for item in (await server.get("/workflows/flow/schedules"))["items"]]
    paused = (await server.call("PATCH", f"/schedules/{hourly}", {"is_active": False, "reason": "too loud"})).json
    assert (paused["is_active"], paused["is_paused"], paused["paused_reason"]) == (False, True, "too loud")
    assert (await server.get(f"/schedules/{yearly}"))["is_active"]
    assert await _ids(server, "?state=paused") == [hourly]
    explained = await server.get(f"/schedules/{hourly}/explain")
    assert (explained["code"], "too loud" in explained["sentence"]) == ("paused", True)
    await server.call("POST", "/workflows/flow/pause")
    resumed = await server.call("PATCH", f"/schedules/{hourly}", {"is_active": True})
    assert (resumed.json["is_active"], resumed.json["is_paused"]) == (False, False)
    await server.call("POST", "/workflows/flow/unpause")
    assert (await server.get(f"/schedules/{hourly}"))["is_active"]
    decisions = await server.get(f"/schedules/{hourly}/decisions?limit=2")
    assert [item["decision"] for item in decisions["items"]] == ["resumed", "resumed"]
    rest = await server.get(f"/schedules/{hourly}/decisions?cursor={decisions['next_cursor']}")
    assert [(item["decision"], item["details"]["reason"]) for item in rest["items"]] == [("paused", "too loud")]


async def test_a_schedule_is_taken_out_of_its_definition(server: Server):
    await server.define(TASK, schedules=[HOURLY, YEARLY])
    hourly, yearly = [item["id"] for item in (await server.get("/workflows/flow/schedules"))["items"]]
    assert (await server.call("DELETE", f"/schedules/{hourly}")).status == 204
    assert (await server.call("DELETE", f"/schedules/{hourly}")).status == 404
    found = await server.get("/workflows/flow")
    assert [item["id"] for item in found["schedules"]] == [yearly]
    assert found["definition"]["schedules"] == [YEARLY]
    assert found["schedule_cron"] == YEARLY["schedule_cron"]
    assert (await server.call("DELETE", f"/schedules/{yearly}")).status == 204
    assert (await server.get("/workflows/flow"))["schedules"] == []


async def test_the_schedule_of_a_workflow_without_tasks_is_taken_away(server: Server):
    await server.call("POST", "/workflows", {"name": "bare", "schedule_cron": "0 0 * * *"})
    (schedule_id,) = await _ids(server)
    assert (await server.call("DELETE", f"/schedules/{schedule_id}")).status == 204
    assert await _ids(server) == []


async def test_the_schedule_of_a_job_goes_with_the_job(server: Server):
    job = await server.call("POST", "/jobs", {"command": "true", "schedule": "0 0 * * *"})
    (schedule_id,) = await _ids(server)
    refused = await server.call("DELETE", f"/schedules/{schedule_id}")
    assert (refused.status, "DELETE /jobs/" in refused.json["detail"]) == (409, True)
    assert (await server.call("DELETE", f"/jobs/{job.json['id']}")).status == 204
    assert await _ids(server) == []


async def test_what_does_not_exist_here(server: Server):
    await server.define(TASK, schedules=[HOURLY])
    (known,) = await _ids(server)
    for path in (f"/schedules/{UNKNOWN}", "/schedules/none", f"/schedules/{known}?namespace=elsewhere"):
        assert (await server.call("GET", path)).status == 404
    assert (await server.call("PATCH", f"/schedules/{UNKNOWN}", {"is_active": True})).status == 404
    assert (await server.call("PATCH", f"/schedules/{known}", {"schedule_cron": "* * * * *"})).status == 422
    assert (await server.call("GET", f"/schedules/{known}/decisions?cursor=x")).status == 422


async def test_a_preview_tells_what_the_clock_does(server: Server):
    body = {
        "cron": "30 2 * * *",
        "timezone": "America/New_York",
        "from": "2024-03-09T00:00:00Z",
        "count": 3,
        "dst_gap": "after",
    }
    items = (await server.call("POST", "/schedules/preview", body)).json["items"]
    assert [item["at"] for item in items] == ["2024-03-09T07:30:00Z", "2024-03-10T07:00:00Z", "2024-03-11T06:30:00Z"]
    assert items[1]["local"] == "2024-03-10T03:00:00-04:00"
    assert [item["note"] is not None for item in items] == [False, True, False]
    skipped = (await server.call("POST", "/schedules/preview", {**body, "dst_gap": "skip"})).json["items"]
    assert [item["at"] for item in skipped][1] == "2024-03-11T06:30:00Z"
    every = (await server.call("POST", "/schedules/preview", {"interval": "90s", "from": body["from"]})).json["items"]
    assert [item["at"][14:19] for item in every] == ["00:00", "01:30", "03:00", "04:30", "06:00"]
    once = (await server.call("POST", "/schedules/preview", {"timestamp": "2000-01-01T00:00:00Z"})).json["items"]
    assert once == []


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["schedule_cron"]),
        ({"cron": "0 0 31 2 *"}, ["cron"]),
        ({"cron": "* * * * *", "timezone": "Europe/Rigga"}, ["timezone"]),
        ({"cron": "* * * * *", "count": 1001}, ["count"]),
        ({"cron": "* * * * *", "from": "yesterday"}, ["from"]),
        ({"interval": 0}, ["interval"]),
        ({"cron": "* * * * *", "interval": 60}, ["cron", "interval"]),
        ({"cron": "* * * * *", "start_at": "2030-01-02", "end_at": "2030-01-01"}, ["end_at"]),
        ({"cron": "* * * * *", "colour": "red"}, ["colour"]),
    ],
)
async def test_a_preview_of_nonsense_is_refused(server: Server, body: dict, fields: list[str]):
    answer = await server.call("POST", "/schedules/preview", body)
    assert (answer.status, [error["field"] for error in answer.json["errors"]]) == (422, fields)
