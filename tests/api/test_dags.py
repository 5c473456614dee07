"""Workflows, runs and task runs in the words of DAGs."""

from __future__ import annotations

import pytest

from tests.api.server import Server

ETL = {"name": "etl_pipeline", "schedule": "0 0 * * *", "start_date": "2030-01-01T00:00:00Z", "tags": ["etl"]}


async def test_a_dag_from_its_creation_to_its_end(server: Server):
    dag = await server.post("/dags", ETL, status=201)
    assert (dag["name"], dag["schedule"], dag["tags"], dag["is_paused"]) == (
        "etl_pipeline",
        "0 0 * * *",
        ["etl"],
        False,
    )
    assert (dag["start_date"], dag["end_date"]) == ("2030-01-01T00:00:00Z", None)
    path = f"/dags/{dag['id']}"
    assert await server.get("/dags/etl_pipeline") == await server.get(path) == dag
    assert (await server.post(f"{path}/pause"))["is_paused"]
    assert (await server.get("/dags?is_paused=true&tag=etl"))["items"][0]["id"] == dag["id"]
    assert not (await server.post(f"{path}/unpause"))["is_paused"]
    changed = await server.call("PUT", path, {"description": "Nightly", "end_date": "2031-01-01T00:00:00Z"})
    assert (changed.json["description"], changed.json["schedule"]) == ("Nightly", "0 0 * * *")
    assert (changed.json["start_date"], changed.json["end_date"]) == (dag["start_date"], "2031-01-01T00:00:00Z")
    without = await server.call("PUT", path, {"schedule": "", "is_paused": True})
    assert (without.json["schedule"], without.json["is_paused"]) == ("", True)
    assert (await server.call("DELETE", path)).status == 204
    assert (await server.call("GET", path)).status == 404


async def test_runs_and_task_instances(server: Server):
    dag = await server.post(
        "/dags",
        {"name": "two", "tasks": [{"name": "a", "command": "true"}, {"name": "b", "command": "x", "depends_on": "a"}]},
        status=201,
    )
    run_id = (await server.trigger("two"))["id"]
    (run,) = (await server.get(f"/dag-runs?dag_id={dag['id']}&state=running"))["items"]
    assert (run["id"], run["dag_id"], run["external_trigger"]) == (run_id, dag["id"], True)
    waiting = await server.get(f"/task-instances?dag_run_id={run_id}&state=queued")
    assert {(item["task_id"], item["state"]) for item in waiting["items"]} == {("a", "queued"), ("b", "queued")}
    (first,) = await server.take()
    await server.finish(first)
    (second,) = await server.take()
    await server.finish(second, "failed", error="no")
    (failed,) = (await server.get("/task-instances?state=failed"))["items"]
    assert failed == await server.get(f"/task-instances/{failed['id']}")
    assert (failed["task_id"], failed["error_message"], failed["try_number"], failed["max_tries"]) == ("b", "no", 1, 1)
    assert failed["duration"] >= 0
    assert (await server.get(f"/dag-runs/{run_id}"))["state"] == "failed"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "x", "schedule": "61 * * * *"}, "schedule_cron"),
        ({"name": "x", "is_paused": "yes"}, "is_paused"),
        ({"name": "x", "dag": 1}, "dag"),
    ],
)
async def test_bad_dags(server: Server, body: dict[str, object], field: str):
    refused = await server.call("POST", "/dags", body)
    assert refused.status == 422
    assert field in refused.json["errors"][0]["field"]


async def test_a_dag_keeps_its_name(server: Server):
    await server.post("/dags", {"name": "a"}, status=201)
    refused = await server.call("PUT", "/dags/a", {"name": "b"})
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "name")
    assert (await server.call("GET", "/dags/b")).status == 404
    assert (await server.call("GET", "/dag-runs/nothing")).status == 404
    assert (await server.call("GET", "/task-instances?state=odd")).status == 422
