"""Workflows over HTTP."""

from __future__ import annotations

from tests.api.server import Server

CHAIN = (
    {"name": "extract", "command": "echo hello", "retry_count": 2},
    {"name": "load", "command": "true", "depends_on": ["extract"]},
)


async def test_a_workflow_is_saved_found_and_deleted(server: Server):
    created = await server.define(*CHAIN, tags=["etl"], schedule_cron="0 2 * * *", description="Nightly")
    assert created["current_version"] == 1
    assert created["schedule_cron"] == "0 2 * * *"
    assert created["next_run_at"].endswith("02:00:00Z")
    by_name = await server.get("/workflows/flow")
    by_id = await server.get(f"/workflows/{created['id'].upper()}")
    assert by_name == by_id
    assert [task["name"] for task in by_name["definition"]["tasks"]] == ["extract", "load"]
    (schedule,) = (await server.get("/workflows/flow/schedules"))["items"]
    assert schedule == by_name["schedules"][0]
    explained = await server.get(f"/schedules/{schedule['id']}/explain")
    assert explained["code"] == "not_due"
    assert (await server.call("DELETE", "/workflows/flow")).status == 204
    assert (await server.call("GET", "/workflows/flow")).status == 404


async def test_what_is_read_can_be_sent_back(server: Server):
    await server.define(*CHAIN, schedule_cron="0 2 * * *", params={"day": {"type": "string", "default": "x"}})
    found = (await server.get("/workflows/flow"))["definition"]
    answer = await server.call("PUT", "/workflows/flow", found)
    assert (answer.status, answer.json["is_new"], answer.json["is_changed"]) == (200, False, False)


async def test_apply_creates_then_changes(server: Server):
    first = await server.call("PUT", "/workflows/flow", {"tasks": [{"name": "a", "command": "true"}]})
    assert (first.status, first.json["is_new"], first.json["current_version"]) == (201, True, 1)
    second = await server.call("PUT", "/workflows/flow", {"tasks": [{"name": "a", "command": "false"}]})
    assert (second.status, second.json["is_changed"], second.json["current_version"]) == (200, True, 2)
    versions = await server.get("/workflows/flow/versions")
    assert [version["number"] for version in versions["items"]] == [2, 1]
    old = await server.get("/workflows/flow/versions/1")
    assert old["definition"]["tasks"][0]["command"] == "true"
    assert (await server.call("GET", "/workflows/flow/versions/3")).status == 404
    other = await server.call("PUT", "/workflows/flow", {"name": "other", "tasks": []})
    assert (other.status, other.json["errors"][0]["field"]) == (422, "name")


async def test_a_change_on_top_of_another_is_refused(server: Server):
    await server.define(*CHAIN)
    seen = (await server.call("GET", "/workflows/flow")).headers["ETag"]
    body = {"description": "mine"}
    assert (await server.call("PATCH", "/workflows/flow", body, If_Match=seen)).status == 200
    late = await server.call("PATCH", "/workflows/flow", {"description": "yours"}, If_Match=seen)
    assert (late.status, late.json["code"]) == (412, "stale_version")
    assert (await server.call("PATCH", "/workflows/flow", body, If_Match='"no version"')).status == 412
    assert (await server.get("/workflows/flow"))["description"] == "mine"


async def test_patch_replaces_single_fields(server: Server):
    await server.define(*CHAIN, schedule_cron="0 2 * * *", tags=["a"])
    changed = (await server.call("PATCH", "/workflows/flow", {"schedule_cron": "0 3 * * *", "tags": None})).json
    assert (changed["schedule_cron"], changed["tags"]) == ("0 3 * * *", [])
    assert len((await server.get("/workflows/flow/tasks"))["items"]) == 2
    paused = (await server.call("PATCH", "/workflows/flow", {"is_active": False})).json
    assert paused["is_active"] is False
    wrong = await server.call("PATCH", "/workflows/flow", {"is_active": "no", "shedule": 1})
    assert wrong.status == 422
    assert {fault["field"] for fault in wrong.json["errors"]} == {"is_active", "shedule"}


async def test_pause_and_unpause(server: Server):
    await server.define(*CHAIN, schedule_cron="* * * * *")
    assert (await server.post("/workflows/flow/pause"))["is_active"] is False
    assert (await server.get("/workflows?is_active=true"))["items"] == []
    assert (await server.post("/workflows/flow/unpause"))["is_active"] is True
    assert (await server.get("/workflows?is_active=true"))["total"] == 1


async def test_a_bare_workflow_gets_its_tasks_later(server: Server):
    bare = await server.post("/workflows", {"name": "flow", "schedule_cron": "0 2 * * *"}, status=201)
    assert bare["current_version"] == 0
    assert (await server.get("/workflows/flow"))["definition"]["schedules"] == [{"schedule_cron": "0 2 * * *"}]
    first = await server.post("/workflows/flow/tasks", {"name": "a", "command": "true", "retry_count": 3}, status=201)
    assert (first["workflow_id"], first["retry_count"]) == (bare["id"], 3)
    await server.post("/workflows/flow/tasks", {"name": "b", "command": "true", "depends_on": ["a"]}, status=201)
    listed = await server.get("/workflows/flow/tasks")
    assert [(task["name"], task["depends_on"]) for task in listed["items"]] == [("a", []), ("b", ["a"])]
    same = await server.call("POST", "/workflows/flow/tasks", {"name": "a", "command": "true"})
    assert same.status == 422
    assert (await server.get("/workflows/flow"))["schedule_cron"] == "0 2 * * *"


async def test_validation_saves_nothing(server: Server):
    good = await server.post("/workflows/validate", {"name": "flow", "tasks": [{"name": "a", "command": "true"}]})
    assert good["is_valid"] is True
    assert good["definition"]["tasks"] == [{"name": "a", "command": "true"}]
    circle = [{"name": "a", "command": "true", "depends_on": ["b"]}, {"name": "b", "command": "x", "depends_on": ["a"]}]
    bad = await server.post("/workflows/validate", {"name": "flow", "tasks": circle, "timezone": "Mars/Base"})
    assert bad["is_valid"] is False
    assert any("circle" in fault["reason"] for fault in bad["errors"])
    assert (await server.get("/workflows"))["total"] == 0


async def test_a_name_in_use_is_refused(server: Server):
    await server.define(*CHAIN)
    again = await server.call("POST", "/workflows", {"name": "flow", "tasks": list(CHAIN)})
    assert (again.status, again.json["code"]) == (409, "conflict")


async def test_namespaces_do_not_see_each_other(server: Server):
    mine = await server.define(*CHAIN)
    await server.post("/workflows?namespace=other", {"name": "flow", "tasks": list(CHAIN)}, status=201)
    assert (await server.call("GET", f"/workflows/{mine['id']}?namespace=other")).status == 404
    assert [row["namespace"] for row in (await server.get("/workflows?namespace=other"))["items"]] == ["other"]
    run = await server.trigger()
    assert (await server.call("GET", f"/workflow-runs/{run['id']}?namespace=other")).status == 404
    cancel = await server.call("POST", f"/workflow-runs/{run['id']}/cancel?namespace=other", {})
    assert cancel.status == 404
    wrong = await server.call("GET", "/workflows?namespace=No%20Such")
    assert (wrong.status, wrong.json["errors"][0]["field"]) == (422, "namespace")


async def test_lists_come_in_pages(server: Server):
    for number in range(5):
        await server.define(*CHAIN, name=f"flow-{number}", tags=[f"t{number % 2}"])
    first = await server.get("/workflows?limit=2")
    assert ([row["name"] for row in first["items"]], first["total"]) == (["flow-4", "flow-3"], 5)
    names = []
    cursor = first["next_cursor"]
    while cursor:
        page = await server.get(f"/workflows?limit=2&cursor={cursor}")
        names += [row["name"] for row in page["items"]]
        cursor = page["next_cursor"]
    assert names == ["flow-2", "flow-1", "flow-0"]
    assert [row["name"] for row in (await server.get("/workflows?offset=4"))["items"]] == ["flow-0"]
    assert (await server.get("/workflows?tag=t1"))["total"] == 2
    assert (await server.get("/workflows?q=OW-3"))["total"] == 1
    assert (await server.get("/workflows?q=%25"))["total"] == 0
    for query in ("limit=0", "limit=501", "offset=-1", "cursor=!", "cursor=YWJj"):
        assert (await server.call("GET", f"/workflows?{query}")).status == 422, query


async def test_params_are_checked_when_a_run_starts(server: Server):
    params = {"day": {"type": "string"}, "count": {"type": "integer", "default": 3}}
    await server.define({"name": "a"}, params=params)
    run = await server.trigger(params={"day": "monday"}, note="by hand", logical_date="2026-01-02T03:04:05+02:00")
    assert run["params"] == {"day": "monday", "count": 3}
    assert (run["note"], run["logical_date"]) == ("by hand", "2026-01-02T01:04:05Z")
    for body, field in (
        ({"params": {}}, "params.day"),
        ({"params": {"day": 1}}, "params.day"),
        ({"params": {"day": "x", "cuont": 1}}, "params.cuont"),
        ({"logical_date": "2026-01-02T03:04:05", "params": {"day": "x"}}, "logical_date"),
        ({"logical_date": "soon"}, "logical_date"),
        ({"parms": {}}, "parms"),
    ):
        answer = await server.call("POST", "/workflows/flow/trigger", body)
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)


async def test_a_workflow_with_open_runs_stays(server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    assert (await server.call("DELETE", "/workflows/flow")).status == 409
    await server.work()
    assert (await server.call("DELETE", "/workflows/flow")).status == 204
