"""Approvals over HTTP."""

from __future__ import annotations

from typing import Any

from tests.api.server import Server

ASK = {"message": "Ship it?", "deadline_seconds": 3600}


async def _start(server: Server, **asked: Any) -> tuple[str, str]:
    await server.call("PUT", "/workflows/flow", {"name": "flow", "tasks": [{"name": "gate", "approval": ASK | asked}]})
    run_id = (await server.trigger())["id"]
    (row,) = (await server.get(f"/workflow-runs/{run_id}"))["task_runs"]
    return run_id, row["id"]


async def test_an_approval_is_listed_and_decided_once(server: Server):
    run_id, task_run_id = await _start(server)
    (item,) = (await server.get("/approvals"))["items"]
    assert (item["id"], item["run_id"], item["task"], item["message"]) == (task_run_id, run_id, "gate", "Ship it?")
    assert (item["approvers"], item["may_decide"], item["on_deadline"]) == ([], True, "fail")
    assert item["due_at"] > item["started_at"]
    found = await server.get(f"/task-runs/{task_run_id}")
    assert (found["status"], found["holder"], found["waiting_for"]["message"]) == ("running", "approval", "Ship it?")
    decided = await server.post(f"/task-runs/{task_run_id}/approve", {"reason": "looks good"})
    assert {name: decided[name] for name in ("id", "status", "decision", "by", "reason")} == {
        **{"id": task_run_id, "status": "success", "decision": "approved", "by": "local", "reason": "looks good"}
    }
    assert (await server.get("/approvals"))["items"] == []
    over = await server.get(f"/task-runs/{task_run_id}")
    assert (over["status"], over["output"]["by"]) == ("success", "local")
    assert (await server.get(f"/workflow-runs/{run_id}"))["status"] == "success"
    again = await server.call("POST", f"/task-runs/{task_run_id}/reject", {"reason": "no"})
    assert (again.status, again.json["code"]) == (409, "conflict")
    history = await server.get(f"/history?entity_id={task_run_id}")
    assert history["items"][-1]["metadata"]["reason"] == "looks good"


async def test_rejected_without_a_body(server: Server):
    run_id, task_run_id = await _start(server)
    decided = await server.post(f"/task-runs/{task_run_id}/reject")
    assert (decided["status"], decided["decision"], decided["reason"]) == ("failed", "rejected", "")
    assert (await server.get(f"/workflow-runs/{run_id}"))["status"] == "failed"


async def test_who_is_not_named_is_refused(server: Server):
    _run_id, task_run_id = await _start(server, approvers=["ann"])
    (item,) = (await server.get("/approvals?workflow=flow"))["items"]
    assert (item["approvers"], item["may_decide"]) == (["ann"], False)
    refused = await server.call("POST", f"/task-runs/{task_run_id}/approve", {})
    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    assert "only ann may" in refused.json["detail"]
    _run_id, other = await _start(server, approvers=["ann", "local"])
    await server.post(f"/task-runs/{other}/approve")


async def test_what_cannot_be_decided(server: Server):
    _run_id, task_run_id = await _start(server)
    assert (await server.call("POST", "/task-runs/none/approve")).status == 404
    assert (await server.call("POST", f"/task-runs/{task_run_id}/approve?namespace=other")).status == 404
    wrong = await server.call("POST", f"/task-runs/{task_run_id}/approve", {"reson": "typo"})
    assert (wrong.status, wrong.json["errors"][0]["field"]) == (422, "reson")
    await server.define({"name": "a"}, name="plain")
    run = await server.trigger("plain")
    (row,) = (await server.get(f"/workflow-runs/{run['id']}"))["task_runs"]
    plain = await server.call("POST", f"/task-runs/{row['id']}/approve")
    assert (plain.status, plain.json["code"]) == (409, "conflict")
