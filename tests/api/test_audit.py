"""The audit log: every change that succeeds, with who, what and from where; nothing that did not happen."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.api import app
from rota.api.audit import CHANGING
from rota.api.options import AccessOptions, ApiOptions
from rota.api.permissions import find_need
from rota.api.requests import LimitedRoute
from rota.store import audit
from tests.api.server import Server, open_server


async def _read(server: Server, key: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
    return list((await server.call("GET", f"/audit{query}", **key)).json["items"])


async def test_changes_are_noted_with_who_what_and_from_where(server: Server):
    root = await server.make_key("root", "admin")
    job = (await server.call("POST", "/jobs", {"command": "true"}, **root)).json
    await server.call("POST", "/workflows", {"name": "flow", "tasks": [{"name": "a", "command": "true"}]}, **root)
    run = (await server.call("POST", "/workflows/flow/trigger", {}, **root)).json
    await server.call("POST", f"/workflow-runs/{run['id']}/cancel", {}, **root)
    await server.call("PUT", "/pools/small?namespace=a", {"slots": 1}, **root)
    await server.call("POST", "/jobs", {"command": "true", "namespace": "b"}, **root)
    await server.call("POST", "/api-keys", {"name": "ci"}, **root)
    found = await _read(server, root)
    assert [(entry["action"], entry["entity_type"], entry["namespace"]) for entry in reversed(found)] == [
        ("create_job", "jobs", "default"),
        ("create_workflow", "workflows", "default"),
        ("trigger_workflow", "workflows", "default"),
        ("cancel_run", "workflow-runs", "default"),
        ("put_pool", "pools", "a"),
        ("create_job", "jobs", "b"),
        ("create_api_key", "api-keys", ""),
    ]
    assert {(entry["actor"], entry["actor_kind"], entry["address"]) for entry in found} == {
        ("root", "key", "127.0.0.1")
    }
    assert found[-1]["entity_id"] == job["id"]
    assert found[-3]["entity_id"] == "flow"
    assert found[-4]["entity_id"] == run["id"]


async def test_what_was_refused_or_changes_nothing_is_not_noted(server: Server):
    root = await server.make_key("root", "admin")
    viewer = await server.make_key("looks")
    await server.call("POST", "/jobs", {"command": "true"}, **viewer)
    await server.call("POST", "/jobs", {"command": 5}, **root)
    await server.call("DELETE", "/workflows/nothing", **root)
    await server.call("POST", "/workflows/validate", {"name": "a", "tasks": []}, **root)
    await server.call("GET", "/api-keys", **root)
    await server.call("POST", "/workers/register", {}, **root)
    assert await _read(server, root) == []


async def test_a_key_for_some_namespaces_reads_those(server: Server):
    await server.make_key("root", "admin")
    key = await server.make_key("tenant", "admin", namespaces=("mine",))
    await server.call("POST", "/jobs?namespace=mine", {"command": "true"}, **key)
    assert [entry["actor"] for entry in await _read(server, key, "?namespace=mine")] == ["tenant"]
    assert (await server.call("GET", "/audit", **key)).status == 422
    assert (await server.call("GET", "/audit?namespace=default", **key)).status == 404


async def test_pages_and_filters(server: Server):
    for number in range(5):
        await server.call("PUT", f"/pools/p{number}", {"slots": 1})
    await server.call("DELETE", "/pools/p0")
    first = (await server.call("GET", "/audit?limit=4")).json
    rest = (await server.call("GET", f"/audit?limit=4&cursor={first['next_cursor']}")).json
    assert [entry["entity_id"] for entry in first["items"] + rest["items"]] == ["p0", "p4", "p3", "p2", "p1", "p0"]
    assert rest["next_cursor"] is None
    assert [entry["action"] for entry in await _read(server, {}, "?entity_id=p0")] == ["delete_pool", "put_pool"]
    assert len(await _read(server, {}, "?action=put_pool&actor=local")) == 5
    for wrong in ("cursor=x", "cursor=0", "limit=501", "cursor=" + "9" * 40):
        assert (await server.call("GET", f"/audit?{wrong}")).status == 422, wrong


async def test_many_at_once_are_all_noted(server: Server):
    answers = await asyncio.gather(*(server.call("POST", "/jobs", {"command": "true"}) for _ in range(100)))
    noted = {entry["entity_id"] for entry in await _read(server, {}, "?limit=500")}
    assert noted == {answer.json["id"] for answer in answers}


async def test_an_answer_that_was_repeated_is_noted_each_time_it_was_asked_for(server: Server):
    for _ in range(2):
        await server.call("POST", "/jobs", {"command": "true"}, idempotency_key="once")
    assert len({entry["entity_id"] for entry in await _read(server, {})}) == 1


async def test_old_entries_go(database_url: str):
    async with open_server(database_url, ApiOptions(access=AccessOptions(remember_seconds=0))) as server:
        for number in range(3):
            await server.call("PUT", f"/pools/p{number}", {"slots": 1})
        await server.database.transact(lambda tx: audit.delete_old(tx, retention_seconds=3600))
        assert len(await _read(server, {})) == 3
        await server.database.transact(lambda tx: audit.delete_old(tx, retention_seconds=-3600))
        assert await _read(server, {}) == []


def test_every_route_that_changes_something_is_noted():
    """No endpoint says so itself: it follows from what it asks of its callers."""
    for part in app.PARTS:
        for route in part.router.routes:
            if find_need(route.endpoint).permission in CHANGING:
                assert isinstance(route, LimitedRoute)
                assert type(route).get_route_handler is LimitedRoute.get_route_handler, route.name
