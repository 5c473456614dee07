"""Requests that are repeated with the same key."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.errors import Unavailable
from rota.store import idempotency
from rota.store.database import OUTCOME_UNKNOWN
from tests.api.server import Server

JOB = {"name": "hello", "command": "true"}


async def test_the_same_key_and_body_do_it_once(server: Server):
    first = await server.call("POST", "/jobs", JOB, Idempotency_Key="a-1")
    again = await server.call("POST", "/jobs", JOB, Idempotency_Key="a-1")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert again.headers["Location"] == first.headers["Location"]
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert (await server.get("/jobs"))["total"] == 1
    # At the root it is the same request, and in another namespace it is another key.
    server.prefix = ""
    assert (await server.call("POST", "/jobs", JOB, Idempotency_Key="a-1")).json == first.json
    other = await server.call("POST", "/jobs?namespace=other", JOB, Idempotency_Key="a-1")
    assert (other.status, other.json["id"] == first.json["id"]) == (201, False)


@pytest.mark.parametrize("body", [{"name": "other", "command": "true"}, {**JOB, "priority": 1}])
async def test_another_body_is_refused(server: Server, body):
    assert (await server.call("POST", "/jobs", JOB, Idempotency_Key="k")).status == 201
    answer = await server.call("POST", "/jobs", body, Idempotency_Key="k")
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, "Idempotency-Key")
    assert (await server.get("/jobs"))["total"] == 1


async def test_a_key_belongs_to_one_address(server: Server):
    await server.define({"name": "a"}, name="one")
    await server.define({"name": "a"}, name="two")
    run = await server.call("POST", "/workflows/one/trigger", {}, Idempotency_Key="t")
    assert (await server.call("POST", "/workflows/one/trigger", {}, Idempotency_Key="t")).json == run.json
    assert (await server.call("POST", "/workflows/two/trigger", {}, Idempotency_Key="t")).status == 422
    assert (await server.get("/workflow-runs"))["total"] == 1


async def test_what_was_refused_may_be_tried_again(server: Server):
    job = {**JOB, "pool": "later"}
    assert (await server.call("POST", "/jobs", job, Idempotency_Key="p")).status == 422
    await server.call("PUT", "/pools/later", {"slots": 1})
    assert (await server.call("POST", "/jobs", job, Idempotency_Key="p")).status == 201


async def test_twins_at_the_same_moment(server: Server):
    answers = await asyncio.gather(*(server.call("POST", "/jobs", JOB, Idempotency_Key="twin") for _ in range(8)))
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == 1
    assert (await server.get("/jobs"))["total"] == 1


async def test_who_was_cut_off_is_not_done_twice(server: Server, monkeypatch):
    monkeypatch.setattr("rota.api.idempotency.WAIT_SECONDS", 0.0)

    async def fail(_spec):
        raise Unavailable("the database was lost while it committed", code=OUTCOME_UNKNOWN)

    monkeypatch.setattr(server.engine, "create_job", fail)
    assert (await server.call("POST", "/jobs", JOB, Idempotency_Key="cut")).status == 503
    again = await server.call("POST", "/jobs", JOB, Idempotency_Key="cut")
    assert (again.status, again.json["code"]) == (409, "request_unfinished")
    assert "look whether it was done" in again.json["detail"]
    await server.database.transact(lambda tx: idempotency.drop(tx, "default", "cut"))
    monkeypatch.undo()
    assert (await server.call("POST", "/jobs", JOB, Idempotency_Key="cut")).status == 201


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "é"])
async def test_keys_that_are_none(server: Server, key: str):
    answer = await server.call("POST", "/jobs", JOB, Idempotency_Key=key)
    assert (answer.status, answer.json["code"]) == (422, "invalid_input")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs/bulk", {"jobs": [JOB, JOB]}),
        ("/workflows", {"name": "w", "tasks": [{"name": "a", "command": "true"}]}),
        ("/workflows/flow/trigger", {"note": "x"}),
        ("/workflows/flow/tasks", {"name": "second", "command": "true"}),
    ],
)
async def test_every_creating_call_takes_a_key(server: Server, path: str, body):
    await server.define({"name": "first"})
    first = await server.call("POST", path, body, Idempotency_Key="x")
    assert first.status == 201
    again = await server.call("POST", path, body, Idempotency_Key="x")
    assert (again.status, again.json) == (201, first.json)
