"""Runs as graphs, grids and pairs; versions compared and brought back."""

from __future__ import annotations

from typing import Any

from tests.api.server import Server

NOWHERE = "01890a5d-ac96-774b-bcce-b302099a8057"


async def test_a_run_as_a_graph(server: Server):
    await server.define(
        *({"name": "end", "depends_on": ["b", "a"]}, {"name": "a"}, {"name": "b", "depends_on": ["a"]}),
        {"name": "clean", "depends_on": ["end"], "teardown": True},
    )
    run = await server.trigger()
    await server.take()
    graph = await server.get(f"/workflow-runs/{run['id']}/graph")
    assert [(node["task"], node["level"], node["status"]) for node in graph["nodes"]] == [
        ("end", 2, "pending"),
        ("a", 0, "running"),
        ("b", 1, "pending"),
        ("clean", 3, "pending"),
    ]
    assert graph["edges"] == [[0, 3], [1, 0], [1, 2], [2, 0]]
    assert (graph["levels"], graph["workflow_version"], graph["nodes"][3]["is_teardown"]) == (4, 1, True)
    assert (await server.call("GET", f"/workflow-runs/{run['id']}/graph?namespace=other")).status == 404
    assert (await server.call("GET", f"/workflow-runs/{NOWHERE}/graph")).status == 404


async def test_runs_as_a_grid(server: Server):
    await server.define({"name": "a"}, {"name": "old"}, {"name": "c", "depends_on": ["a"]})
    first = await server.trigger()
    await server.work("failed", exit_code=1)
    changed = [{"name": "a", "command": "true"}, {"name": "new", "command": "true", "depends_on": ["a"]}]
    assert (await server.call("PUT", "/workflows/flow", {"tasks": changed})).status == 200
    second = await server.trigger()
    await server.work()
    third = await server.trigger()
    await server.take()
    grid = await server.get("/workflow-runs/grid?workflow=flow")
    assert grid["tasks"] == ["a", "new", "old", "c"]
    assert [(row["id"], row["cells"], row["workflow_version"]) for row in grid["runs"]] == [
        (third["id"], "rp--", 2),
        (second["id"], "ss--", 2),
        (first["id"], "f-fu", 1),
    ]
    assert {grid["legend"][letter] for letter in "rpsfu"} == {
        *("running", "pending", "success", "failed"),
        "upstream_failed",
    }
    assert grid["next_cursor"] is None
    seen: list[str] = []
    path = "/workflow-runs/grid?workflow=flow&limit=1"
    cursor: str | None = ""
    while cursor is not None:
        page = await server.get(path + (f"&cursor={cursor}" if cursor else ""))
        seen += [row["id"] for row in page["runs"]]
        cursor = page["next_cursor"]
    assert seen == [third["id"], second["id"], first["id"]]
    older = await server.get(f"/workflow-runs/grid?workflow=flow&until={second['created_at']}")
    assert [row["id"] for row in older["runs"]] == [first["id"]]
    assert older["tasks"] == ["a", "old", "c"]
    assert (await server.call("GET", "/workflow-runs/grid?workflow=none")).status == 404
    for query in ("", "?workflow=flow&until=yesterday", "?workflow=flow&until=2030-01-01T00:00:00"):
        assert (await server.call("GET", f"/workflow-runs/grid{query}")).status == 422, query


async def test_an_empty_grid(server: Server):
    await server.define({"name": "a"})
    grid = await server.get("/workflow-runs/grid?workflow=flow")
    assert (grid["runs"], grid["tasks"], grid["next_cursor"]) == ([], [], None)


async def test_two_runs_beside_each_other(server: Server):
    await server.define({"name": "a", "retry_count": 1, "retry_delay_seconds": 0}, {"name": "b", "depends_on": ["a"]})
    first = await server.trigger(params={"x": 1, "y": None, "z": [1]})
    await server.work()
    await server.call("POST", "/workflows/flow/tasks", {"name": "c", "command": "true"})
    second = await server.trigger(params={"x": 2, "z": [1]})
    await server.work("failed", exit_code=1)
    found = await server.get(f"/workflow-runs/{first['id']}/compare/{second['id']}")
    assert [run["workflow_version"] for run in found["runs"]] == [1, 2]
    assert all(run["duration_seconds"] >= 0 for run in found["runs"])
    assert found["params"] == [{"name": "x", "values": [1, 2]}, {"name": "y", "values": [None, None]}]
    rows = {row["task"]: row for row in found["tasks"]}
    assert (rows["a"]["statuses"], rows["a"]["attempts"]) == (["success", "failed"], [1, 2])
    assert (rows["c"]["statuses"], rows["c"]["durations_seconds"][0]) == ([None, "failed"], None)
    assert all(row["is_different"] for row in rows.values())
    same = await server.get(f"/workflow-runs/{first['id']}/compare/{first['id']}")
    assert (same["params"], {row["is_different"] for row in same["tasks"]}) == ([], {False})
    assert (await server.call("GET", f"/workflow-runs/{first['id']}/compare/{NOWHERE}")).status == 404


async def test_what_a_version_changed(server: Server):
    await server.define({"name": "a"}, {"name": "b"}, description="one")
    tasks = [{"name": "a", "command": "false"}, {"name": "c", "command": "true", "depends_on": ["a"]}]
    await server.call("PUT", "/workflows/flow", {"tasks": tasks})
    diff = await server.get("/workflows/flow/versions/2/diff")
    assert (diff["against"], diff["number"], diff["is_same"]) == (1, 2, False)
    assert (diff["added"], diff["removed"]) == (["c"], ["b"])
    assert diff["fields"] == [{"field": "description", "old": "one", "new": None}]
    assert diff["changed"] == [{"task": "a", "fields": [{"field": "command", "old": "true", "new": "false"}]}]
    assert (await server.get("/workflows/flow/versions/1/diff"))["added"] == ["a", "b"]
    assert (await server.get("/workflows/flow/versions/2/diff?against=2"))["is_same"] is True
    assert (await server.get("/workflows/flow/versions/1/diff?against=2"))["removed"] == ["c"]
    for path in ("versions/3/diff", "versions/0/diff", "versions/1/diff?against=9"):
        assert (await server.call("GET", f"/workflows/flow/{path}")).status == 404, path


async def test_going_back_to_a_version(server: Server):
    await server.define({"name": "a"}, {"name": "b"}, schedule_cron="0 0 1 1 *")
    await server.call("PUT", "/workflows/flow", {"tasks": [{"name": "z", "command": "true"}]})
    open_run = await server.trigger()
    await server.post("/workflows/flow/pause")
    tag = (await server.call("GET", "/workflows/flow")).headers["ETag"]
    stale = await server.call("POST", "/workflows/flow/rollback", {"version": 1}, If_Match='"1"')
    assert (stale.status, stale.json["code"]) == (412, "stale_version")
    back = await server.call("POST", "/workflows/flow/rollback", {"version": 1}, If_Match=tag)
    assert (back.status, back.json["current_version"], back.json["is_changed"]) == (200, 3, True)
    found = await server.get("/workflows/flow")
    assert [task["name"] for task in found["definition"]["tasks"]] == ["a", "b"]
    assert (found["is_active"], found["schedule_cron"]) == (False, "0 0 1 1 *")
    assert (await server.get("/workflows/flow/versions/3/diff?against=1"))["is_same"] is True
    assert (await server.get(f"/workflow-runs/{open_run['id']}"))["workflow_version"] == 2
    again = await server.post("/workflows/flow/rollback", {"version": 3})
    assert (again["current_version"], again["is_changed"]) == (3, False)
    assert (await server.call("POST", "/workflows/flow/rollback", {"version": 9})).status == 404
    bodies: list[dict[str, Any]] = [{}, {"version": 0}, {"version": "1"}]
    for body in bodies:
        assert (await server.call("POST", "/workflows/flow/rollback", body)).status == 422, body
    job = await server.post("/jobs", {"command": "true"}, status=201)
    assert (await server.call("POST", f"/workflows/{job['id']}/rollback", {"version": 1})).status == 409


async def test_filters_of_lists(server: Server):
    await server.define({"name": "a"}, {"name": "other"}, name="one", tags=["etl", "x"])
    await server.define({"name": "a"}, name="two", tags=["etl2"])
    first = await server.trigger("one", labels={"team": "data", "env": "dev"}, note="Monday")
    second = await server.trigger("two", labels={"team": "data"})
    third = await server.trigger("one", labels={"team": "ops", "env": "dev"})
    ids = {first["id"]: 1, second["id"]: 2, third["id"]: 3}

    async def find(query: str) -> list[int]:
        return [ids[row["id"]] for row in (await server.get(f"/workflow-runs?{query}"))["items"]]

    assert await find("tag=etl") == [3, 1]
    assert await find("q=MON") == [1]
    assert await find("q=tw") == [2]
    assert await find("label=team:data") == [2, 1]
    assert await find("label=team:data&label=env:dev") == [1]
    assert await find("label=env:dev&workflow=one&status=in_progress") == [3, 1]
    assert await find("label=team:no") == []
    assert await find(f"since={second['created_at']}") == [3, 2]
    assert await find(f"until={second['created_at']}") == [1]
    assert await find(f"since={first['created_at']}&until={third['created_at']}&tag=etl") == [1]
    assert await find("since=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59.999999Z") == [3, 2, 1]
    assert await find("status=failed&status=cancelled") == []
    page = await server.get("/workflow-runs?label=env:dev&limit=1")
    assert [ids[row["id"]] for row in page["items"]] == [3]
    rest = await server.get(f"/workflow-runs?label=env:dev&limit=1&cursor={page['next_cursor']}")
    assert [ids[row["id"]] for row in rest["items"]] == [1]
    tasks = (await server.get("/task-runs?q=OTH&tag=etl"))["items"]
    assert {row["task"] for row in tasks} == {"other"}
    assert len((await server.get(f"/task-runs?until={third['created_at']}"))["items"]) == 3
    for query in ("label=team", "label=:x", "since=2030-01-01T00:00:00", "until=x", "status=no"):
        refused = await server.call("GET", f"/workflow-runs?{query}")
        assert (refused.status, refused.json["errors"][0]["field"]) == (422, query.split("=")[0]), query


async def test_when_a_workflow_fires_next(server: Server):
    rules = [{"schedule_cron": "0 12 * * *", "timezone": "Europe/Riga"}, {"schedule_cron": "30 0 1 * *"}]
    await server.define({"name": "a"}, schedules=rules)
    await server.post("/workflows/flow/pause")
    items = (await server.get("/workflows/flow/preview?count=40"))["items"]
    moments = [item["at"] for item in items]
    assert len(items) == 40
    assert moments == sorted(moments)
    assert {item["local"][11:16] for item in items} == {"12:00", "00:30"}
    assert len((await server.get("/workflows/flow/preview"))["items"]) == 5
    await server.define({"name": "a"}, name="by hand")
    assert (await server.get("/workflows/by hand/preview"))["items"] == []
    assert (await server.call("GET", "/workflows/flow/preview?count=0")).status == 422
    assert (await server.call("GET", "/workflows/none/preview")).status == 404
