"""What a run is given and what is written on it: parameters, labels, notes."""

from __future__ import annotations

from typing import Any

from tests.api.server import Server


async def test_parameters_are_checked_at_the_trigger(server: Server):
    declared = {"day": {"type": "string", "default": "{{ ds }}"}, "size": {"type": "integer", "minimum": 1}}
    await server.define({"name": "a"}, params=declared)
    run = await server.trigger(params={"size": 2}, logical_date="2030-02-03T23:30:00-02:00")
    assert run["params"] == {"day": "2030-02-04", "size": 2}
    for params, field in (
        ({}, "params.size"),
        ({"size": 0}, "params.size"),
        ({"size": "2"}, "params.size"),
        ({"size": 2, "dy": 1}, "params.dy"),
    ):
        refused = await server.call("POST", "/workflows/flow/trigger", {"params": params})
        assert (refused.status, refused.json["code"]) == (422, "invalid_input")
        assert [fault["field"] for fault in refused.json["errors"]] == [field], params
    unknown = await server.call("POST", "/workflows/flow/trigger", {"params": {"sise": 2, "size": 1}})
    assert 'did you mean "size"?' in unknown.json["errors"][0]["reason"]
    assert (await server.get("/workflow-runs"))["total"] == 1


async def test_a_schedule_without_defaults_is_refused_when_it_is_saved(server: Server):
    definition = {"name": "x", "params": {"day": {"type": "string"}}, "tasks": [{"name": "a", "command": "true"}]}
    assert (await server.call("POST", "/workflows", definition)).status == 201
    refused = await server.call("PATCH", "/workflows/x", {"schedule_cron": "0 0 * * *"})
    assert (refused.status, [fault["field"] for fault in refused.json["errors"]]) == (422, ["params.day"])
    job = await server.call("POST", "/jobs", {"command": "true", "params": {"day": {"type": "string"}}})
    assert (job.status, [fault["field"] for fault in job.json["errors"]]) == (422, ["params.day"])


async def test_labels_and_notes(server: Server):
    await server.define({"name": "a"})
    run = await server.trigger(labels={"team": "data", "why": "test"}, note="first")
    assert (run["labels"], run["note"]) == ({"team": "data", "why": "test"}, "first")
    path = f"/workflow-runs/{run['id']}"
    changed = await server.call("PATCH", path, {"labels": {"why": None, "env": "dev"}, "note": "second"})
    assert (changed.status, changed.json["labels"], changed.json["note"]) == (
        *(200, {"team": "data", "env": "dev"}),
        "second",
    )
    assert (await server.get(path))["labels"] == {"team": "data", "env": "dev"}
    last = (await server.get(f"{path}/history"))["items"][-1]
    assert (last["metadata"]["event"], last["metadata"]["by"]) == ("annotated", "local")
    bodies: list[dict[str, Any]] = [
        {"labels": {"a:b": "c"}},
        {"labels": {"a": 1}},
        {"labels": []},
        {"status": "success"},
    ]
    for body in bodies:
        refused = await server.call("PATCH", path, body)
        assert refused.status == 422, body
    assert (await server.call("POST", "/workflows/flow/trigger", {"labels": {"": "x"}})).status == 422
    assert (await server.call("PATCH", f"{path}?namespace=other", {"note": "x"})).status == 404


async def test_marking_a_task_run(server: Server):
    await server.define({"name": "a"}, {"name": "b", "depends_on": ["a"]}, {"name": "c", "depends_on": ["b"]})
    run = await server.trigger()
    (taken,) = await server.take()
    path = f"/task-runs/{taken.task_run_id}/mark"
    for body in ({"status": "cancelled"}, {"status": "done"}, {}, {"status": "success", "why": "x"}):
        assert (await server.call("POST", path, body)).status == 422
    marked = await server.post(path, {"status": "failed", "reason": "wrong day"})
    assert (marked["status"], marked["error_type"]) == ("failed", "marked")
    assert marked["error"] == "marked failed by local: wrong day"
    assert (await server.get(f"/workflow-runs/{run['id']}"))["status"] == "failed"
    assert (await server.post(path, {"status": "success"}))["status"] == "success"
    attempts = (await server.get(f"/task-runs/{taken.task_run_id}"))["attempts"]
    assert [(row["attempt"], row["status"]) for row in attempts] == [(1, "failed")]
    refused = await server.call("POST", path, {"status": "failed"})
    assert (refused.status, refused.json["code"]) == (409, "conflict")
    await server.work()
    assert (await server.get(f"/workflow-runs/{run['id']}"))["status"] == "success"
    assert (await server.call("POST", f"{path}?namespace=other", {"status": "success"})).status == 404


async def test_executing_again(server: Server):
    await server.define({"name": "a"}, {"name": "b", "depends_on": ["a"]})
    run = await server.trigger(params={"x": 1}, labels={"k": "v"})
    path = f"/workflow-runs/{run['id']}"
    assert (await server.call("POST", f"{path}/rerun")).status == 409
    await server.work()
    whole = await server.call("POST", f"{path}/rerun", {"note": "again"})
    assert (whole.status, whole.json["rerun_of"], whole.json["note"]) == (201, run["id"], "again")
    assert (whole.json["params"], whole.json["labels"]) == ({"x": 1}, {"k": "v"})
    assert whole.headers["Location"].endswith(whole.json["id"])
    part = await server.call("POST", f"{path}/retry", {"tasks": ["b"]}, Idempotency_Key="once")
    assert (part.status, part.json["rerun_of"], part.json["queued"], part.json["waiting"]) == (201, run["id"], 1, 0)
    again = await server.call("POST", f"{path}/retry", {"tasks": ["b"]}, Idempotency_Key="once")
    assert again.json == part.json
    found = await server.get(f"/workflow-runs/{part.json['id']}")
    assert [(row["task"], row["status"]) for row in found["task_runs"]] == [("a", "success"), ("b", "queued")]
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"tasks": ["b"], "whole": True}, "tasks"),
        ({"version": 2}, "version"),
        ({"version": "newest"}, "version"),
        ({"tasks": ["zz"]}, "tasks[0]"),
        ({"tasks": []}, "tasks"),
    ]
    for body, field in bodies:
        refused = await server.call("POST", f"{path}/retry", body)
        assert refused.status == 422, body
        assert refused.json["errors"][0]["field"].startswith(field), refused.json
    current = await server.call("POST", f"{path}/retry", {"whole": True, "version": "current"})
    assert (current.status, current.json["queued"]) == (201, 1)
