"""Every role at every endpoint, by real requests that are generated from the routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fastapi.routing import APIRoute

from rota.api import app
from rota.api.permissions import Need, find_need
from rota.domain.access import GRANTS, Permission, Role
from tests.api.server import Server

NAMES = {role: f"the {role}" for role in Role}
# What is read without naming a namespace and is no secret from those who see only some.
# (The audit log asks for one itself.)
WITHOUT_NAMESPACE = {
    "list_audit_log",
    "validate_workflow",
    "preview_schedule",
    "list_workers",
    "read_worker",
    "read_health",
    "show_document",
    "show_listing",
}


def _list_endpoints() -> Iterator[tuple[str, str, APIRoute, Need]]:
    for part in app.PARTS:
        for route in part.router.routes:
            if not isinstance(route, APIRoute):
                # WebSockets are asked in their own way.
                continue
            path = re.sub(r"\{\w+\}", "nothing", route.path)
            for method in sorted(route.methods or ()):
                yield method, path, route, find_need(route.endpoint)


async def _ask(server: Server, method: str, path: str, key: dict[str, Any]) -> tuple[int, str]:
    """Status and code of the answer; a stream is not read to its end."""
    url = server.url + app.PREFIX + path
    async with server.session.request(method, url, headers={**key, "content-type": "application/json"}) as response:
        if response.status < 400 or "problem" not in response.headers.get("content-type", ""):
            return response.status, ""
        return response.status, (await response.json(content_type=None))["code"]


async def test_each_role_gets_through_where_it_may_and_nowhere_else(server: Server):
    keys = {role: await server.make_key(NAMES[role], role) for role in Role}
    tried = 0
    for method, path, _route, need in _list_endpoints():
        for role, key in keys.items():
            status, code = await _ask(server, method, path, key)
            is_let_in = code not in ("unauthenticated", "forbidden")
            assert is_let_in == (need.permission in GRANTS[role]), (method, path, role, status, code)
            tried += 1
        status, code = await _ask(server, method, path, {})
        assert (code == "unauthenticated") == (need.permission is not Permission.OPEN), (method, path, status)
    assert tried > 200


async def test_what_concerns_all_namespaces_takes_a_key_for_all(server: Server):
    await server.make_key("root", "admin")
    key = await server.make_key("tenant", "admin", namespaces=("mine",))
    for method, path, _route, need in _list_endpoints():
        _status, code = await _ask(server, method, path, key)
        assert (code == "forbidden") == need.is_everywhere, (method, path)


async def test_another_namespace_does_not_exist(server: Server):
    await server.make_key("root", "admin")
    key = await server.make_key("tenant", "admin", namespaces=("mine",))
    for method, path, route, need in _list_endpoints():
        if need.is_everywhere or need.permission in (Permission.OPEN, Permission.SIGNED_IN):
            continue
        if not _takes_namespace(route):
            assert route.name in WITHOUT_NAMESPACE, f"{route.name} asks for no Namespace"
            continue
        for query in ("", "?namespace=default", "?namespace=others"):
            assert (await _ask(server, method, path + query, key))[0] in (404, 422), (method, path, query)


def _takes_namespace(route: APIRoute) -> bool:
    found: list[Any] = [route.dependant]
    while found:
        dependant = found.pop()
        if any(parameter.name == "namespace" for parameter in dependant.query_params):
            return True
        found += dependant.dependencies
    return False


async def test_ids_of_another_namespace_name_nothing(server: Server):
    root = await server.make_key("root", "admin")
    key = await server.make_key("tenant", "admin", namespaces=("mine",))

    async def make(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await server.call("POST", path, body, **root)
        assert answer.status == 201, answer
        return answer.json

    workflow = await make(
        "/workflows", {"name": "flow", "schedule_cron": "0 0 1 1 *", "tasks": [{"name": "a", "command": "true"}]}
    )
    run = await make("/workflows/flow/trigger", {})
    job = await make("/jobs", {"command": "true"})
    detail = (await server.call("GET", f"/workflow-runs/{run['id']}", **root)).json
    schedule = (await server.call("GET", "/workflows/flow/schedules", **root)).json["items"][0]
    assert (await server.call("PUT", "/pools/small", {"slots": 1}, **root)).status == 201
    ids = {
        "workflow": workflow["id"],
        "run_id": run["id"],
        "job_id": job["id"],
        "task_run_id": detail["task_runs"][0]["id"],
        "schedule_id": schedule["id"],
        "name": "small",
        "number": "1",
    }
    tried = set()
    for method, _path, route, need in _list_endpoints():
        wanted = re.findall(r"\{(\w+)\}", route.path)
        if need.is_everywhere or not wanted or not set(wanted) <= set(ids) or not _takes_namespace(route):
            continue
        path = route.path.format(**ids)
        for namespace in ("mine", "default"):
            status, _code = await _ask(server, method, f"{path}?namespace={namespace}", key)
            # A body that is missing is told before anything is looked for.
            assert status == 404 or (status == 422 and method in ("PUT", "PATCH", "POST")), (method, path, status)
        tried |= set(wanted)
    assert tried == set(ids)
    assert (
        await server.call("POST", "/jobs?namespace=mine", {"command": "true", "namespace": "default"}, **key)
    ).status == 404
    assert (await server.call("GET", f"/workflow-runs/{run['id']}", **root)).json["status"] == detail["status"]
