"""The request lines of the older systems' own documents, sent to the root as their clients do."""

from __future__ import annotations

import pytest

from tests.api.server import Server


@pytest.fixture
def root(server: Server) -> Server:
    server.prefix = ""
    return server


async def test_system_a(root: Server):
    sent = b'{"name":"daily-etl","description":"Daily ETL pipeline","schedule_cron":"0 2 * * *","is_active":true}'
    created = await root.call("POST", "/workflows", data=sent)
    assert created.status == 201
    workflow = created.json
    assert workflow["id"]
    assert {name: workflow[name] for name in ("name", "description", "schedule_cron", "is_active")} == {
        "name": "daily-etl",
        "description": "Daily ETL pipeline",
        "schedule_cron": "0 2 * * *",
        "is_active": True,
    }
    assert workflow["created_at"]
    listed = await root.get("/workflows?offset=0&limit=10")
    assert [row["id"] for row in listed["items"]] == [workflow["id"]]
    task = {"name": "load", "command": "true", "retry_count": 1, "retry_delay_seconds": 5, "timeout_seconds": 60}
    added = await root.post(f"/workflows/{workflow['id']}/tasks", task, status=201)
    assert {name: added[name] for name in task} == task
    triggered = await root.call("POST", f"/workflows/{workflow['id']}/trigger")
    assert triggered.status == 201
    run = triggered.json
    assert (run["workflow_id"], run["finished_at"]) == (workflow["id"], None)
    assert (await root.get("/workflow-runs?status=pending"))["items"] == []
    assert [row["id"] for row in (await root.get("/workflow-runs"))["items"]] == [run["id"]]
    await root.work()
    (task_run,) = (await root.get("/task-runs"))["items"]
    assert (task_run["workflow_run_id"], task_run["task_id"]) == (run["id"], added["id"])
    assert (task_run["status"], task_run["attempt"]) == ("success", 1)
    assert "logs" in await root.get(f"/task-runs/{task_run['id']}")
    (worker,) = (await root.get("/workers"))["items"]
    assert {"id", "hostname", "last_heartbeat", "status"} <= worker.keys()
    assert worker["status"] == "active"
    assert (await root.get("/healthz"))["status"] == "ok"
    assert (await root.call("GET", "/metrics")).status == 200


async def test_system_b(root: Server):
    created = await root.call("POST", "/jobs", {"name": "greet", "command": "echo hi", "schedule": ""})
    assert (created.status, created.json["status"]) == (201, "pending")
    job_id = created.json["id"]
    assert [row["name"] for row in (await root.get("/jobs"))["items"]] == ["greet"]
    registered = await root.call("POST", "/workers/register", {"worker_id": "worker-1", "hostname": "far"})
    assert registered.status == 201
    assert registered.json["status"] == "active"
    beat = await root.call("POST", "/workers/heartbeat", {"worker_id": "worker-1"})
    assert beat.status == 200
    assigned = await root.call("GET", "/workers/worker-1/next")
    assert (assigned.status, assigned.json["command"]) == (200, "echo hi")
    assert (await root.call("GET", "/workers/worker-1/next")).status == 204
    part = {"worker_id": "worker-1", "logs": "hi\n", "status": "running"}
    assert (await root.call("POST", f"/jobs/{job_id}/log", part)).status == 200
    report = {"worker_id": "worker-1", "logs": "bye\n", "status": "success", "exit_code": 0}
    assert (await root.call("POST", f"/jobs/{job_id}/log", report)).status == 200
    job = await root.get(f"/jobs/{job_id}")
    assert (job["status"], job["last_run"]["status"], job["last_run"]["exit_code"]) == ("success", "success", 0)
    (run,) = (await root.get(f"/jobs/{job_id}/runs?status=success"))["items"]
    assert run["worker"] == "worker-1"
    assert (await root.get(f"/task-runs/{run['task_run_id']}"))["logs"] == "hi\nbye\n"
    assert (await root.get(f"/jobs/{job_id}/runs?status=failed"))["items"] == []


async def test_system_c(root: Server):
    health = await root.get("/health")
    assert (health["status"], health["database"]) == ("healthy", True)
    assert {"version", "service"} <= health.keys()


ONCE = (
    b'{"type": "unico", "timestamp": "2024-12-25T10:00:00Z", "webhook_url": "https://example.com/webhook",'
    b' "payload": {"message": "Merry Christmas!"}}'
)
DAILY = b'{"type": "recurrente", "cron_expression": "0 0 * * *", "webhook_url": "https://example.com/daily-report"}'
UNTIL = (
    b'{"type": "recurrente", "cron_expression": "0 9 * * 1-5", "last_date": "2034-12-31T23:59:59Z",'
    b' "webhook_url": "https://example.com/"}'
)


async def test_system_d(root: Server):
    created = [await root.call("POST", "/jobs", data=body) for body in (ONCE, DAILY, UNTIL)]
    assert [answer.status for answer in created] == [201, 201, 201]
    job_id = created[-1].json["id"]
    job = await root.get(f"/jobs/{job_id}")
    assert (job["cron_expression"], job["last_date"]) == ("0 9 * * 1-5", "2034-12-31T23:59:59Z")
    status = await root.get(f"/jobs/{job_id}/status")
    assert (status["status"], status["attempt_count"]) == ("pending", 0)
    assert (await root.get(f"/jobs/{job_id}/executions"))["items"] == []
    for word in ("completed", "failed", "in_progress"):
        assert (await root.get(f"/jobs?status={word}"))["items"] == []
    cancelled = await root.call("POST", f"/jobs/{job_id}/cancel", data=b'{"reason": "No longer needed"}')
    assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
    assert [row["id"] for row in (await root.get("/jobs?status=cancelled"))["items"]] == [job_id]
    assert (await root.call("DELETE", f"/jobs/{job_id}")).status == 204
    once = next(row for row in (await root.get("/jobs"))["items"] if row["type"] == "unico")
    assert (once["timestamp"], once["payload"]) == ("2024-12-25T10:00:00Z", {"message": "Merry Christmas!"})
    assert (await root.get("/health"))["role"]
