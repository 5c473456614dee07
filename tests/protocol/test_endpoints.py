"""The worker protocol as it is spoken without our client: words, refusals, tokens, older forms."""

from __future__ import annotations

import base64
from typing import Any

from tests.api.server import Server

NOWHERE = "01890a5d-ac96-774b-bcce-b302099a8057"


async def join(server: Server, **body: Any) -> dict[str, Any]:
    answer = await server.call("POST", "/workers/register", {"worker_id": "one", **body})
    assert answer.status == 201, answer
    return answer.json


def token(worker: dict[str, Any]) -> dict[str, Any]:
    return {"X_Rota_Incarnation": worker["incarnation"]}


async def assign(server: Server, worker: dict[str, Any], **task: Any) -> dict[str, Any]:
    await server.define({"name": "a", **task})
    await server.trigger()
    answer = await server.call("GET", f"/workers/{worker['id']}/next", **token(worker))
    assert answer.status == 200, answer
    return answer.json


async def test_one_assignment_a_list_or_nothing(server: Server):
    worker = await join(server)
    one = await assign(server, worker, command="echo 1")
    assert (one["id"], one["name"], one["command"]) == (one["task_run_id"], "flow.a", "echo 1")
    path = f"/workers/{worker['id']}/next"
    assert (await server.call("GET", path, **token(worker))).status == 204
    assert (await server.call("GET", f"{path}?limit=3&wait=0.05", **token(worker))).status == 204
    await server.trigger()
    several = await server.call("GET", f"{path}?limit=3", **token(worker))
    assert [item["task"] for item in several.json] == ["a"]
    for query in ("limit=0", "limit=1001", "wait=-1", "wait=nan", "wait=1e9", "format=xml", "format=sh&limit=2"):
        assert (await server.call("GET", f"{path}?{query}", **token(worker))).status == 422, query


async def test_tokens(server: Server):
    worker, other = await join(server), await join(server, worker_id="two")
    path = f"/workers/{worker['id']}"
    bearer: dict[str, Any] = {"Authorization": f"Bearer {worker['incarnation']}"}
    assert (await server.call("GET", f"{path}/next", **bearer)).status == 204
    assert (await server.call("GET", "/workers/one/next", **bearer)).status == 204
    wrong: list[dict[str, Any]] = [token(other), {"X_Rota_Incarnation": "x"}, {"X_Rota_Incarnation": NOWHERE}]
    for headers in wrong:
        for method, address, body in (
            ("GET", f"{path}/next", None),
            ("POST", f"{path}/events", {"events": []}),
            ("POST", f"{path}/leave", None),
            ("POST", "/workers/heartbeat", {"worker_id": worker["id"]}),
            ("POST", f"/jobs/{NOWHERE}/log", {"worker_id": worker["id"], "status": "success"}),
        ):
            answer = await server.call(method, address, body, **headers)
            assert (answer.status, answer.json["code"]) == (401, "unknown_worker"), address
            assert worker["incarnation"] not in answer.body.decode()
    body = {"worker_id": worker["id"], "incarnation": worker["incarnation"]}
    assert (await server.call("POST", "/workers/heartbeat", body)).status == 200
    listed = await server.call("GET", "/workers")
    assert worker["incarnation"] not in listed.body.decode()


async def test_without_a_token_the_id_or_the_newest_of_that_label(server: Server):
    first, second = await join(server), await join(server)
    await server.define({"name": "a"}, {"name": "b"})
    await server.trigger()
    taken = await server.call("GET", "/workers/one/next")
    assert taken.status == 200
    assert (await server.get(f"/workers/{second['id']}"))["running"] == 1
    assert (await server.call("GET", f"/workers/{first['id']}/next")).status == 200
    assert (await server.get(f"/workers/{first['id']}"))["running"] == 1
    for name in ("none", NOWHERE, "%27"):
        assert (await server.call("GET", f"/workers/{name}/next")).status == 401
    assert (await server.call("POST", f"/workers/{second['id']}/leave", **token(second))).status == 204
    assert (await server.call("GET", f"/workers/{second['id']}/next")).status == 401
    # What the second one held is there again, and the first one is the newest now.
    assert (await server.call("GET", "/workers/one/next")).json["attempt"] == 2


async def test_events_in_all_their_forms(server: Server):
    worker = await join(server)
    taken = await assign(server, worker)
    key = {"task_run_id": taken["task_run_id"], "attempt": 1}
    events = [
        {"type": "started", **key},
        {"type": "log", **key, "offset": 0, "text": "grün\n"},
        {"type": "log", **key, "offset": 6, "data": base64.b64encode(b"\xff\n").decode()},
        {"type": "finished", **key, "status": "completed", "exit_code": 0},
    ]
    path = f"/workers/{worker['id']}/events"
    answer = await server.call("POST", path, {"events": events}, **token(worker))
    assert [item["is_accepted"] for item in answer.json["results"]] == [True, True, True, True]
    late = await server.call("POST", path, {"events": events[:2]}, **token(worker))
    assert [item["code"] for item in late.json["results"]] == ["late", "late"]
    found = await server.get(f"/task-runs/{key['task_run_id']}")
    assert (found["status"], found["logs"]) == ("success", "grün\n\ufffd\n")


async def test_malformed_events_are_refused_one_by_one(server: Server):
    worker = await join(server)
    taken = await assign(server, worker)
    key = {"task_run_id": taken["task_run_id"], "attempt": 1}
    bad: list[Any] = [
        None,
        7,
        [],
        {},
        {"type": "finished"},
        {"type": "danced", **key},
        {"type": "finished", **key, "status": "splendid"},
        {"type": "finished", **key, "status": "success", "exit_code": "0"},
        {"type": "finished", **key, "status": "success", "exit_code": 2**40},
        {"type": "finished", **key, "status": "success", "colour": "red"},
        {"type": "finished", "task_run_id": "x" * 36, "attempt": 1, "status": "success"},
        {"type": "finished", **key, "attempt": -1, "status": "success"},
        {"type": "finished", **key, "attempt": 2**31, "status": "success"},
        {"type": "log", **key, "offset": -1, "text": "a"},
        {"type": "log", **key, "offset": 0, "data": "no base64!"},
        {"type": "finished", **key, "status": "failed", "error_type": "x" * 41},
        {"type": "started", "task_run_id": "x" * 36, "attempt": 1},
    ]
    good = {"type": "finished", **key, "status": "failed", "error": "with a NUL \0", "output": {"a": "\0"}}
    answer = await server.call("POST", f"/workers/{worker['id']}/events", {"events": [*bad, good]}, **token(worker))
    assert answer.status == 200, answer
    results = answer.json["results"]
    assert [item["is_accepted"] for item in results] == [False] * len(bad) + [True]
    assert all(item["detail"] for item in results[:-1])
    assert (await server.get(f"/task-runs/{key['task_run_id']}"))["error"] == "with a NUL \ufffd"
    for body in (b"", b"[]", b'{"events": 1}', b'{"events": [], "claim": -1}', b'{"events": [], "x": 1}', b"\xff"):
        assert (await server.call("POST", f"/workers/{worker['id']}/events", data=body, **token(worker))).status == 422


async def test_the_single_report_by_job_and_by_task_run(server: Server):
    worker = await join(server)
    job = await server.post("/jobs", {"command": "true"}, status=201)
    taken = (await server.call("GET", f"/workers/{worker['id']}/next")).json
    me = {"worker_id": worker["id"]}
    first = await server.call("POST", f"/jobs/{job['id']}/log", {**me, "logs": "one\n"})
    assert (first.status, first.json["status"], first.json["task_run_id"]) == (200, "running", taken["id"])
    query = f"worker_id={worker['id']}&attempt=1"
    raw = await server.call("POST", f"/jobs/{taken['id']}/log?{query}", data=b"\xfftwo\n", content_type="text/plain")
    assert (raw.status, raw.json["status"]) == (200, "running")
    end = await server.call("POST", f"/jobs/{taken['id']}/log", {**me, "exit_code": 4, "logs": "end"})
    assert (end.status, end.json["status"]) == (200, "failed")
    found = await server.get(f"/task-runs/{taken['id']}")
    assert (found["logs"], found["exit_code"], found["error_type"]) == ("one\n\ufffdtwo\nend", 4, "exit_code")


async def test_the_single_report_of_somebody_else(server: Server):
    worker, other = await join(server), await join(server, worker_id="two")
    taken = await assign(server, worker)
    path = f"/jobs/{taken['id']}/log"
    foreign = await server.call("POST", path, {"worker_id": "two", "attempt": 1, "status": "success"}, **token(other))
    assert (foreign.status, foreign.json["code"]) == (409, "late")
    nothing = await server.call("POST", path, {"worker_id": "two", "status": "success"}, **token(other))
    assert (nothing.status, nothing.json["code"]) == (409, "late")
    assert (await server.get(f"/task-runs/{taken['id']}"))["status"] == "running"
    end = {"worker_id": "one", "attempt": 1, "status": "success"}
    assert (await server.call("POST", path, end)).status == 200
    assert (await server.call("POST", path, end)).status == 409
    history = (await server.get(f"/history?entity_id={taken['id']}"))["items"]
    late = [row for row in history if (row["metadata"] or {}).get("event") == "ignored late result"]
    assert len(late) == 2
    wrong: list[Any] = [{}, {"worker_id": "one", "status": "splendid"}, {"worker_id": "one", "x": 1}, [1]]
    for body in wrong:
        assert (await server.call("POST", path, body)).status == 422
    assert (await server.call("POST", path, data=b"log", content_type="text/plain")).status == 422
    assert (await server.call("POST", "/jobs/x/log", {"worker_id": "one"})).status == 404


async def test_registrations_and_heartbeats_that_cannot_be_read(server: Server):
    registrations: list[Any] = [
        {"queues": []},
        {"queues": "default"},
        {"concurrency": "4"},
        {"concurrency": 0},
        {"labels": {"a": 1}},
        {"worker": "one"},
        {"worker_id": "x" * 201},
        {"kinds": [""]},
        [],
    ]
    for body in registrations:
        assert (await server.call("POST", "/workers/register", body)).status == 422, body
    unknown = {"task_run_id": "x", "attempt": 1}
    heartbeats: list[Any] = [{}, {"worker_id": ""}, {"worker_id": "a", "running": [unknown]}]
    for body in heartbeats:
        assert (await server.call("POST", "/workers/heartbeat", body)).status == 422, body


async def test_a_worker_that_drains(server: Server):
    worker = await join(server)
    drained = await server.post(f"/workers/{worker['id']}/drain")
    assert drained["is_drain_requested"] is True
    beat = await server.call("POST", "/workers/heartbeat", {"worker_id": "one"}, **token(worker))
    assert beat.json["is_draining"] is True
    assert [row["status"] for row in (await server.get("/workers"))["items"]] == ["draining"]
    await server.call("POST", f"/workers/{worker['id']}/leave", **token(worker))
    assert (await server.get("/workers"))["items"] == []
    assert [row["id"] for row in (await server.get("/workers?status=inactive"))["items"]] == [worker["id"]]
    assert (await server.call("POST", f"/workers/{worker['id']}/drain")).status == 404


async def test_answers_for_shells_are_quoted(server: Server):
    answer = await server.call("POST", "/workers/register?format=sh", {"worker_id": "one"})
    variables = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    assert {"ROTA_WORKER_ID", "ROTA_INCARNATION"} <= variables.keys()
    env = {"GREETING": "it's $HOME"}
    await server.define({"name": "a", "command": "echo 'x' \"$GREETING\"", "env": env, "working_directory": "/tmp"})
    await server.trigger()
    answer = await server.call("GET", "/workers/one/next?format=sh")
    assert answer.headers["Content-Type"].startswith("text/x-shellscript")
    script = "export GREETING='it'\"'\"'s $HOME'\ncd -- /tmp || exit 126\necho 'x' \"$GREETING\""
    quoted = "'" + script.replace("'", "'\"'\"'") + "'"
    assert f"ROTA_SCRIPT={quoted}\n" in answer.body.decode()
    assert "ROTA_TIMEOUT_SECONDS=0\n" in answer.body.decode()
