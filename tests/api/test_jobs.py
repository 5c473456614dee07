"""Jobs over HTTP."""

from __future__ import annotations

from tests.api.server import Server


async def test_a_job_runs_now(server: Server):
    created = await server.post("/jobs", {"name": "hello", "command": "echo hello", "max_retries": 1}, status=201)
    assert (created["status"], created["id"]) == ("pending", created["job_id"])
    job = f"/jobs/{created['id']}"
    assert (await server.get(job))["last_run"]["id"] == created["run_id"]
    assert (await server.get(f"{job}/status"))["status"] == "pending"
    (taken,) = await server.take()
    assert taken.spec["command"] == "echo hello"
    assert (await server.get(f"{job}/status"))["status"] == "running"
    await server.finish(taken, "failed", exit_code=7, error_type="exit_code")
    status = await server.get(f"{job}/status")
    assert (status["status"], status["attempt_count"], status["exit_code"]) == ("running", 1, 7)
    await server.post(f"{job}/cancel", {"reason": "enough"})
    assert (await server.get(job))["status"] == "cancelled"
    assert (await server.call("POST", f"{job}/cancel")).status == 409


async def test_the_runs_of_a_job_with_every_attempt(server: Server):
    body = {"command": "x", "max_retries": 1, "retry_delay_seconds": 0}
    job = await server.post("/jobs", body, status=201)
    assert await server.work("failed", exit_code=2, error_type="exit_code", error="exit code 2") == 2
    for name in ("runs", "executions"):
        (run,) = (await server.get(f"/jobs/{job['id']}/{name}?status=failed"))["items"]
        assert (run["attempt"], run["status"], run["worker"]) == (2, "failed", "hand")
        assert [(row["attempt"], row["exit_code"]) for row in run["attempts"]] == [(1, 2), (2, 2)]
        assert (await server.get(f"/jobs/{job['id']}/{name}?status=completed"))["items"] == []
    assert (await server.get("/jobs?status=failed"))["total"] == 1
    assert (await server.get("/jobs?status=completed"))["total"] == 0


async def test_a_job_for_later(server: Server):
    body = {"type": "unico", "timestamp": "2035-12-25T10:00:00Z", "webhook_url": "https://example.com/", "payload": {}}
    created = await server.post("/jobs", body, status=201)
    assert created["run_id"] is None
    job = await server.get(f"/jobs/{created['id']}")
    assert (job["type"], job["timestamp"], job["webhook_url"]) == ("unico", body["timestamp"], body["webhook_url"])
    assert (job["status"], job["next_run_at"], job["payload"]) == ("pending", "2035-12-25T10:00:00Z", {})
    cancelled = await server.post(f"/jobs/{created['id']}/cancel", {"reason": "No longer needed"})
    assert (cancelled["status"], cancelled["is_active"]) == ("cancelled", False)
    assert (await server.get("/jobs?status=canceled"))["total"] == 1
    assert (await server.call("DELETE", f"/jobs/{created['id']}")).status == 204
    assert (await server.call("GET", f"/jobs/{created['id']}")).status == 404


async def test_a_recurring_job(server: Server):
    body = {"name": "tick", "command": "date", "schedule": "*/5 * * * *", "timezone": "Europe/Riga"}
    created = await server.post("/jobs", {**body, "last_date": "2035-01-01T00:00:00Z"}, status=201)
    job = await server.get(f"/jobs/{created['id']}")
    assert (job["type"], job["schedule"], job["cron_expression"]) == ("recurrente", "*/5 * * * *", "*/5 * * * *")
    assert (job["timezone"], job["last_date"]) == ("Europe/Riga", "2035-01-01T00:00:00Z")
    assert job["next_run_at"] is not None


async def test_two_jobs_may_have_one_name(server: Server):
    ids = {(await server.post("/jobs", {"name": "same", "command": "true"}, status=201))["id"] for _ in range(2)}
    assert len(ids) == 2
    assert (await server.get("/jobs?q=SAM"))["total"] == 2
    assert (await server.get("/workflows"))["total"] == 0


async def test_what_a_job_may_not_be(server: Server):
    for body, field in (
        ({}, "command"),
        ({"command": "a", "webhook_url": "http://example.com"}, "webhook_url"),
        ({"command": "a", "schedule": "0 0 31 2 *"}, "schedule"),
        ({"command": "a", "max_retries": -1}, "max_retries"),
        ({"command": "a", "nmae": "x"}, "nmae"),
        ({"command": "a", "type": "recurrente"}, "type"),
        ({"command": "a\0b"}, "command"),
    ):
        answer = await server.call("POST", "/jobs", body)
        assert (answer.status, answer.json["code"]) == (422, "invalid_input")
        assert field in {fault["field"] for fault in answer.json["errors"]}, (field, answer.json)
    assert (await server.get("/jobs"))["total"] == 0


async def test_a_running_job_is_not_deleted(server: Server):
    job = await server.post("/jobs", {"command": "true"}, status=201)
    assert (await server.call("DELETE", f"/jobs/{job['id']}")).status == 409
    await server.work()
    assert (await server.get("/jobs?status=completed"))["total"] == 1
    assert (await server.call("DELETE", f"/jobs/{job['id']}")).status == 204
