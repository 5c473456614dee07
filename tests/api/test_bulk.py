"""Many jobs in one call."""

from __future__ import annotations

from typing import Any

from tests.api.server import Server


async def test_many_jobs_of_every_kind(server: Server):
    await server.call("PUT", "/pools/small", {"slots": 2})
    sent = [
        {"command": "echo 1"},
        {"name": "two", "command": "echo 2", "max_retries": 3, "tags": ["a"]},
        {"name": "two", "command": "echo 2b", "max_retries": 3, "tags": ["a"]},
        {"name": "later", "command": "true", "timestamp": "2035-01-01T00:00:00Z"},
        {"webhook_url": "https://example.com/", "payload": {"n": 1}, "pool": "small"},
        {"name": "tick", "command": "date", "schedule": "*/5 * * * *"},
    ]
    created = await server.post("/jobs/bulk", {"jobs": sent}, status=201)
    assert created["total"] == len(sent)
    jobs = [await server.get(f"/jobs/{item['id']}") for item in created["items"]]
    assert [job["name"] for job in jobs[1:4]] == ["two", "two", "later"]
    assert jobs[0]["name"] == jobs[0]["id"]
    assert [job["command"] for job in jobs] == ["echo 1", "echo 2", "echo 2b", "true", None, "date"]
    assert [job["max_retries"] for job in jobs[:3]] == [0, 3, 3]
    assert jobs[2]["definition"]["tags"] == ["a"]
    assert (jobs[4]["payload"], jobs[5]["schedule"]) == ({"n": 1}, "*/5 * * * *")
    assert [item["run_id"] is None for item in created["items"]] == [False, False, False, True, False, True]
    assert jobs[3]["next_run_at"] == "2035-01-01T00:00:00Z"
    assert await server.work() == 4
    for job in jobs[:3]:
        assert (await server.get(f"/jobs/{job['id']}/status"))["status"] == "success"


async def test_all_or_none(server: Server):
    sent = [{"command": "true"}, {"name": "no action"}, {"command": "true", "pool": "none"}, 7, {"command": "{{ a"}]
    answer = await server.call("POST", "/jobs/bulk", {"jobs": sent})
    assert answer.status == 422
    assert {fault["field"] for fault in answer.json["errors"]} == {"jobs[1].command", "jobs[3]"}
    answer = await server.call("POST", "/jobs/bulk", {"jobs": [sent[0], sent[2], sent[4]]})
    assert {fault["field"] for fault in answer.json["errors"]} == {"jobs[1].pool", "jobs[2]"}
    assert (await server.get("/jobs"))["total"] == 0
    # Alone, a job's faults are named without its place.
    for job, field in ((sent[2], "pool"), (sent[4], "command")):
        answer = await server.call("POST", "/jobs", job)
        assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)


async def test_what_is_no_list_of_jobs(server: Server):
    bodies: list[Any] = [{}, {"jobs": []}, {"jobs": {}}, {"jobs": [{"command": "true"}] * 1001}, {"items": []}]
    for body in bodies:
        answer = await server.call("POST", "/jobs/bulk", body)
        assert (answer.status, answer.json["code"]) == (422, "invalid_input"), body
    answer = await server.call("POST", "/jobs/bulk", {"jobs": [{}] * 1000})
    assert len(answer.json["errors"]) == 100


async def test_jobs_of_other_namespaces(server: Server):
    sent = [{"command": "true"}, {"command": "true", "namespace": "two"}]
    one, two = (await server.post("/jobs/bulk?namespace=one", {"jobs": sent}, status=201))["items"]
    assert (await server.get(f"/jobs/{one['id']}?namespace=one"))["namespace"] == "one"
    assert (await server.get(f"/jobs/{two['id']}?namespace=two"))["namespace"] == "two"
    assert (await server.call("GET", f"/jobs/{two['id']}?namespace=one")).status == 404
