"""Runs, task runs, dead letters, history and pools over HTTP."""

from __future__ import annotations

import pytest

from rota.domain.work import LogChunk
from tests.api.server import Server

NOWHERE = "01890a5d-ac96-774b-bcce-b302099a8057"


async def test_a_run_from_trigger_to_end(server: Server):
    await server.define({"name": "a", "output": "json"}, {"name": "b", "depends_on": ["a"]})
    run = await server.trigger()
    assert (run["status"], run["workflow"], run["task_count"], run["trigger"]) == ("running", "flow", 2, "manual")
    (first,) = await server.take()
    found = await server.get(f"/workflow-runs/{run['id']}")
    assert [(row["task"], row["status"]) for row in found["task_runs"]] == [("a", "running"), ("b", "pending")]
    explained = await server.get(f"/workflow-runs/{run['id']}/explain")
    assert explained["code"] == "running"
    waiting = await server.get(f"/task-runs/{found['task_runs'][1]['id']}/explain")
    assert waiting["code"] == "waiting_for_upstream"
    assert waiting["holders"] == [{"id": first.task_run_id, "name": "a", "since_at": None}]
    live = await server.get(f"/task-runs/{first.task_run_id}")
    assert [(row["attempt"], row["status"], row["finished_at"]) for row in live["attempts"]] == [(1, "running", None)]
    await server.finish(first, exit_code=0, output={"rows": 3}, usage={"cpu_seconds": 0.5})
    await server.work()
    ended = await server.get(f"/task-runs/{first.task_run_id}")
    assert (ended["output"], ended["status"]) == ({"rows": 3}, "success")
    assert [row["usage"] for row in ended["attempts"]] == [{"cpu_seconds": 0.5}]
    over = await server.get(f"/workflow-runs/{run['id']}?task_runs=false")
    assert (over["status"], over["task_runs"]) == ("success", None)


async def test_filters_know_the_older_words(server: Server):
    await server.define({"name": "a"})
    done, running = await server.trigger(), None
    await server.work()
    running = await server.trigger()
    await server.take()
    for word, expected in (("success", done), ("completed", done), ("succeeded", done), ("in_progress", running)):
        listed = await server.get(f"/workflow-runs?status={word}")
        assert [row["id"] for row in listed["items"]] == [expected["id"]], word
    both = await server.get("/workflow-runs?status=success&status=running&workflow=flow")
    assert [row["id"] for row in both["items"]] == [running["id"], done["id"]]
    tasks = await server.get(f"/task-runs?status=in_progress&run_id={running['id']}")
    assert [row["workflow_run_id"] for row in tasks["items"]] == [running["id"]]
    wrong = await server.call("GET", "/workflow-runs?status=finished")
    assert (wrong.status, wrong.json["errors"][0]["field"]) == (422, "status")
    assert (await server.call("GET", "/workflow-runs?workflow=none")).status == 404


async def test_cancel_a_run(server: Server):
    await server.define({"name": "a"}, {"name": "b", "depends_on": ["a"]})
    run = await server.trigger()
    (taken,) = await server.take()
    report = await server.post(f"/workflow-runs/{run['id']}/cancel", {"reason": "no longer needed"})
    assert (report["stopped"], report["asked"], report["status"]) == (1, 1, "running")
    await server.finish(taken, "cancelled")
    over = await server.get(f"/workflow-runs/{run['id']}")
    assert (over["status"], over["cancel_reason"]) == ("cancelled", "no longer needed")
    again = await server.call("POST", f"/workflow-runs/{run['id']}/cancel")
    assert (again.status, again.json["stopped"]) == (200, 0)
    await server.trigger()
    await server.work()
    (newest,) = (await server.get("/workflow-runs?status=success"))["items"]
    late = await server.call("POST", f"/workflow-runs/{newest['id']}/cancel", {})
    assert (late.status, late.json["code"]) == (409, "conflict")


async def test_retry_from_what_failed(server: Server):
    await server.define({"name": "a"}, {"name": "b", "depends_on": ["a"]})
    run = await server.trigger()
    await server.work("failed", exit_code=3, error_type="exit_code", error="exit code 3")
    assert (await server.get(f"/workflow-runs/{run['id']}"))["status"] == "failed"
    unknown = await server.call("POST", f"/workflow-runs/{run['id']}/retry", {"tasks": ["zz"]})
    assert (unknown.status, unknown.json["errors"][0]["field"]) == (422, "tasks[0]")
    report = await server.post(f"/workflow-runs/{run['id']}/retry", {"tasks": ["a"]})
    assert (report["queued"], report["waiting"], report["status"]) == (1, 1, "running")
    await server.work()
    found = await server.get(f"/workflow-runs/{run['id']}")
    assert (found["status"], found["task_runs"][0]["attempt"]) == ("success", 2)
    assert (await server.call("POST", f"/workflow-runs/{run['id']}/retry")).status == 409


async def test_dead_letters(server: Server):
    await server.define({"name": "a"})
    for _ in range(2):
        await server.trigger()
    await server.work("failed", exit_code=1)
    listed = await server.get("/dead-letters")
    assert [row["status"] for row in listed["items"]] == ["failed", "failed"]
    first, second = (row["id"] for row in listed["items"])
    assert (await server.post(f"/task-runs/{second}/retry"))["queued"] == 1
    answer = await server.post("/dead-letters/retry", {"ids": [first, second, NOWHERE, "x", first]})
    codes = {row["id"]: row["code"] for row in answer["items"]}
    assert codes == {first: "ok", second: "conflict", NOWHERE: "not_found", "x": "not_found"}
    assert answer["retried"] == 1
    await server.work()
    assert (await server.get("/dead-letters"))["total"] == 0
    assert (await server.call("POST", "/dead-letters/retry", {"ids": []})).status == 422


async def test_cancel_one_task_run(server: Server):
    await server.define({"name": "a"}, {"name": "b"})
    await server.trigger()
    rows = {row["task"]: row["id"] for row in (await server.get("/task-runs"))["items"]}
    assert (await server.post(f"/task-runs/{rows['a']}/cancel", {"reason": "not this"}))["status"] == "cancelled"
    await server.work()
    assert (await server.call("POST", f"/task-runs/{rows['b']}/cancel")).status == 409


async def test_logs_in_parts_and_raw(server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    (taken,) = await server.take()
    key = (taken.task_run_id, taken.attempt)
    data = "grün".encode()
    chunks = [LogChunk(*key, 0, data[:3]), LogChunk(*key, 3, data[3:] + b"\xff\0\n"), LogChunk(*key, 5000, b"end")]
    await server.engine.report(await server.join(), chunks)
    path = f"/task-runs/{taken.task_run_id}/logs"
    whole = await server.get(path)
    assert (whole["text"], whole["next_offset"], whole["size"]) == ("grün\ufffd\0\nend", 5003, 5003)
    assert whole["is_complete"] is False
    split = await server.get(f"{path}?limit=3")
    assert (split["text"], split["next_offset"]) == ("gr", 2)
    rest = await server.get(f"{path}?offset=2&limit=2")
    assert (rest["text"], rest["next_offset"]) == ("ü", 4)
    raw = await server.call("GET", f"{path}?raw=true")
    assert (raw.body, raw.headers["X-Rota-Next-Offset"]) == (data + b"\xff\0\nend", "5003")
    assert (await server.call("GET", f"{path}?raw=true&offset=6")).body == b"\0\nend"
    assert (await server.call("GET", f"{path}?raw=true&offset=5001")).body == b"nd"
    beyond = await server.get(f"{path}?offset=9000")
    assert (beyond["text"], beyond["next_offset"]) == ("", 9000)
    await server.finish(taken)
    assert (await server.get(path))["is_complete"] is True
    assert (await server.get(f"/task-runs/{taken.task_run_id}"))["logs"] == whole["text"]
    assert (await server.get(f"/task-runs/{taken.task_run_id}?logs=false"))["logs"] is None
    assert (await server.call("GET", f"{path}?attempt=2")).status == 404
    assert (await server.get(f"{path}?attempt=0"))["text"] == ""


async def test_a_long_log_is_read_to_its_end(server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    (taken,) = await server.take()
    pieces = [b"%07d\n" % number for number in range(300)]
    chunks = [LogChunk(taken.task_run_id, 1, 8 * place, piece) for place, piece in enumerate(pieces)]
    await server.engine.report(await server.join(), chunks)
    text, offset = "", 0
    while offset < 2400:
        part = await server.get(f"/task-runs/{taken.task_run_id}/logs?offset={offset}&limit=1001")
        text, offset = text + part["text"], part["next_offset"]
    assert text.encode() == b"".join(pieces)


async def test_history_of_a_run_and_of_everything(server: Server):
    await server.define({"name": "a"})
    run = await server.trigger()
    await server.work()
    changes = (await server.get(f"/workflow-runs/{run['id']}/history"))["items"]
    steps = [(row["entity_type"], row["old_state"], row["new_state"]) for row in changes]
    assert steps[0] == ("workflow_run", None, "running")
    assert ("task_run", "running", "success") in steps
    task_run = next(row["entity_id"] for row in changes if row["entity_type"] == "task_run")
    own = (await server.get(f"/history?entity_type=task_run&entity_id={task_run}"))["items"]
    assert [row["new_state"] for row in own] == ["queued", "running", "success"]
    assert (await server.get(f"/history?since_seq={own[1]['seq']}&entity_id={task_run}"))["items"] == own[2:]
    seen, cursor = [], "0"
    while cursor:
        page = await server.get(f"/history?limit=2&cursor={cursor}")
        seen += [row["seq"] for row in page["items"]]
        cursor = page["next_cursor"]
    assert seen == sorted(set(seen))
    assert {row["seq"] for row in changes} <= set(seen)
    workers = (await server.get("/history?entity_type=worker"))["items"]
    assert [row["new_state"] for row in workers] == ["active"]
    for query in ("cursor=x", "since_seq=-1", "entity_type=dog"):
        assert (await server.call("GET", f"/history?{query}")).status == 422
    assert (await server.call("GET", "/history?entity_id=x")).status == 404


async def test_queues(server: Server):
    assert (await server.call("GET", "/queues/default")).status == 404
    limited = await server.call("PUT", "/queues/default", {"rate_limit": {"starts": 1, "seconds": 3600}})
    assert (limited.status, limited.json["rate_limit"]) == (201, {"starts": 1, "seconds": 3600.0, "burst": 1})
    await server.define({"name": "a"}, {"name": "b"})
    run_id = (await server.trigger())["id"]
    (taken,) = await server.take(5)
    queue = await server.get("/queues/default")
    assert queue["queued"] == 1
    explanation = await server.get(f"/workflow-runs/{run_id}/explain")
    assert taken.run_id == run_id
    assert explanation["code"] == "running"
    paused = await server.call("PUT", "/queues/default", {"is_paused": True, "description": "Night only"})
    assert (paused.status, paused.json["rate_limit"], paused.json["next_start_at"]) == (200, None, None)
    assert [item["name"] for item in (await server.get("/queues"))["items"]] == ["default"]
    assert (await server.call("DELETE", "/queues/default")).status == 204
    assert (await server.call("DELETE", "/queues/default")).status == 404


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"starts": 0}, "to let nothing start, send is_paused; to limit what runs, use a pool"),
        ({"starts": 1, "seconds": 0}, "greater than 0"),
        ({"starts": 1, "burst": 0}, "greater than or equal to 1"),
        ({}, "is required"),
    ],
)
async def test_a_rate_that_cannot_be_is_refused(server: Server, limit: dict, reason: str):
    refused = await server.call("PUT", "/queues/slow", {"rate_limit": limit})
    assert refused.status == 422
    assert reason in refused.json["errors"][0]["reason"]
    assert refused.json["errors"][0]["field"].startswith("rate_limit.")


async def test_pools(server: Server):
    assert (await server.call("PUT", "/pools/gpu", {"slots": 1})).status == 201
    changed = await server.call("PUT", "/pools/gpu", {"slots": 2, "description": "Two cards"})
    assert (changed.status, changed.json["slots"]) == (200, 2)
    await server.define({"name": "a", "pool": "gpu", "pool_slots": 2}, {"name": "b", "pool": "gpu"})
    await server.trigger()
    (taken,) = await server.take(5)
    pool = await server.get("/pools/gpu")
    used = 2 if taken.task == "a" else 1
    assert (pool["used_slots"], pool["queued"]) == (used, 1)
    assert (await server.call("DELETE", "/pools/gpu")).status == 409
    await server.finish(taken)
    await server.work()
    assert [row["used_slots"] for row in (await server.get("/pools"))["items"]] == [0]
    assert (await server.call("DELETE", "/pools/gpu")).status == 204
    assert (await server.call("GET", "/pools/gpu")).status == 404
    for body in ({"slots": 0}, {"slots": "2"}, {"slots": 1, "size": 1}, {}):
        assert (await server.call("PUT", "/pools/gpu", body)).status == 422
    assert (await server.call("PUT", "/pools/a%20b", {"slots": 1})).status == 422


async def test_what_does_not_exist_is_not_found(server: Server):
    for path in (
        *(f"/{kind}/{name}" for kind in ("workflow-runs", "task-runs", "jobs") for name in (NOWHERE, "x", "..%2f")),
        *("/workflows/none", f"/workflows/{NOWHERE}", "/workers/none", "/pools/none", "/nothing/at/all"),
        f"/schedules/{NOWHERE}/explain",
    ):
        answer = await server.call("GET", path)
        assert (answer.status, answer.json["code"]) == (404, "not_found"), path
    for path in (f"/workflow-runs/{NOWHERE}/cancel", f"/task-runs/{NOWHERE}/retry", "/workflows/none/trigger"):
        assert (await server.call("POST", path, {})).status == 404


async def test_a_run_that_a_task_has_started(server: Server):
    await server.define({"name": "work"}, name="child")
    call = {"name": "call", "workflow": "child", "params": {"day": "{{ ds }}"}}
    await server.post("/workflows", {"name": "flow", "tasks": [call]}, status=201)
    run = await server.trigger()
    (call,) = (await server.get(f"/workflow-runs/{run['id']}"))["task_runs"]
    assert (run["parent_run_id"], run["depth"], call["kind"]) == (None, 0, "workflow")
    await server.engine.follow()
    explained = await server.get(f"/task-runs/{call['id']}/explain")
    assert explained["code"] == "waiting_for_run"
    (child,) = (await server.get(f"/workflow-runs?parent_task_run_id={call['id']}"))["items"]
    assert explained["holders"][0]["id"] == child["id"]
    assert (child["workflow"], child["trigger"], child["depth"]) == ("child", "workflow", 1)
    assert (child["parent_run_id"], child["parent_task_run_id"]) == (run["id"], call["id"])
    assert list(child["params"]) == ["day"]
    await server.work()
    await server.engine.follow()
    assert (await server.get(f"/task-runs/{call['id']}"))["output"] == {}
    assert (await server.get(f"/workflow-runs?parent_task_run_id={NOWHERE}"))["items"] == []


async def test_a_circle_of_workflows_is_named(server: Server):
    await server.post("/workflows", {"name": "flow", "tasks": [{"name": "c", "workflow": "other"}]}, status=201)
    await server.define({"name": "fine"}, name="third", on=[{"workflow": "flow", "status": "done"}])
    document = {"name": "other", "tasks": [{"name": "c", "workflow": "flow"}]}
    refused = await server.call("POST", "/workflows", document)
    assert refused.status == 422
    assert [error["field"] for error in refused.json["errors"]] == ["tasks[0].workflow"]
    assert "other → flow → other" in refused.json["detail"]
