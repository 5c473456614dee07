"""Bad requests, and what the service says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry, Counter

from rota.api.app import PREFIX
from rota.api.errors import STATUSES, describe
from rota.api.options import ApiOptions
from rota.domain import errors
from rota.domain.errors import CapacityExceeded, RotaError, TooManyRequests, Unauthenticated, Unavailable
from tests.api.server import Server, open_server

BAD_BODIES = {
    "truncated": b'{"name": "a"',
    "empty list": b"[]",
    "a string": b'"name"',
    "invalid UTF-8": b'{"name": "\xff"}',
    "a lone surrogate": b'{"name": "\\ud800"}',
    "NUL": b'{"name": "a\\u0000b", "tasks": []}',
    "not a number": b'{"name": "a", "grace_seconds": NaN}',
    "endless nesting": b'{"name": "a", "params": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a huge number": b'{"name": "a", "max_active_runs": ' + b"9" * 400 + b"}",
    "nothing but zeros": b"\0" * 100,
}


@pytest.mark.parametrize("path", ["/workflows", "/jobs", "/workers/register", "/workflows/validate"])
async def test_bodies_that_cannot_be_read(server: Server, path: str):
    for name, body in BAD_BODIES.items():
        answer = await server.call("POST", path, data=body)
        if path == "/workflows/validate" and answer.status == 200:
            assert answer.json["is_valid"] is False, name
        else:
            assert (answer.status, answer.json["code"]) == (422, "invalid_input"), name
            assert answer.json["detail"]
        assert b"Traceback" not in answer.body


async def test_json_must_be_named_so(server: Server):
    answer = await server.call("POST", "/workflows", data=b"{}", content_type="text/plain")
    assert answer.status == 422
    assert "Content-Type: application/json" in answer.json["detail"]


async def test_unknown_methods_and_addresses(server: Server):
    answer = await server.call("DELETE", "/workflows")
    assert answer.status == 405
    assert set(answer.headers["Allow"].split(", ")) >= {"GET"}
    for path in ("/workflows/a%00b", "/workflows?q=%00", "/workers/%00", "/pools/%00"):
        assert (await server.call("GET", path)).status == 422, path
    for path in ("/workflows/%ff", "/workflows/" + "x" * 5000, "/jobs/%27%20OR%201=1", "/workers/../../etc/passwd"):
        assert (await server.call("GET", path)).status == 404, path


async def test_bodies_have_a_limit(database_url: str):
    async with open_server(database_url, ApiOptions(max_body_bytes=1000)) as server:
        body = json.dumps({"name": "a", "description": "x" * 1000}).encode()
        announced = await server.call("POST", "/workflows", data=body)
        assert (announced.status, announced.json["code"]) == (413, "too_large")

        async def trickle():
            for start in range(0, len(body), 100):
                yield body[start : start + 100]

        headers = {"Content-Type": "application/json"}
        async with server.session.post(server.url + "/workflows", data=trickle(), headers=headers) as response:
            assert response.status == 413
        assert (await server.get("/workflows"))["total"] == 0


def test_every_error_has_its_status():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RotaError)]
    assert set(STATUSES) == set(kinds) - {RotaError}
    assert len(set(STATUSES.values())) == len(STATUSES)


@pytest.mark.parametrize(
    ("error", "status", "header", "value"),
    [
        (TooManyRequests("slow down", retry_after_seconds=2.2), 429, "Retry-After", "3"),
        (Unavailable("away"), 503, "Retry-After", "1"),
        (CapacityExceeded("full"), 507, "Retry-After", "30"),
        (Unauthenticated("who"), 401, "WWW-Authenticate", "Bearer"),
    ],
)
def test_errors_say_when_to_come_back(error: RotaError, status: int, header: str, value: str):
    answer = describe(error)
    assert (answer.status_code, answer.headers[header]) == (status, value)
    assert json.loads(bytes(answer.body))["code"] == error.code


@pytest.mark.parametrize("path", ["/workflows", "/workers/heartbeat"])
async def test_a_caller_that_hangs_up_is_no_fault_of_ours(server: Server, path: str):
    coming: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(coming)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": PREFIX + path, "query_string": b"", "headers": []}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1)}
    with structlog.testing.capture_logs() as logs:
        await server.app(scope, receive, send)
    assert not [entry for entry in logs if entry["log_level"] == "error"]


async def test_the_service_says_how_it_is(server: Server):
    assert await server.get("/healthz") == {"status": "ok", "service": "api"}
    assert (await server.get("/readyz"))["status"] == "ok"
    health = await server.get("/health")
    assert (health["status"], health["database"]) == ("healthy", True)
    assert (await server.call("GET", "/metrics")).status == 200
    server.app.state.api.polls.close()
    assert (await server.call("GET", "/readyz")).status == 503
    assert (await server.call("GET", "/healthz")).status == 200


async def test_metrics_are_those_of_the_registry(database_url: str):
    registry = CollectorRegistry()
    Counter("rota_seen", "Seen.", registry=registry).inc(3)
    async with open_server(database_url, ApiOptions(registry=registry)) as server:
        server.prefix = ""
        answer = await server.call("GET", "/metrics")
    assert b"rota_seen_total 3.0" in answer.body
    assert answer.headers["Content-Type"].startswith("text/plain")


async def test_a_database_that_is_away(tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path}/none/rota.db"
    async with open_server(url) as server:
        answer = await server.call("GET", "/readyz")
        assert (answer.status, answer.json["status"]) == (503, "unavailable")


async def test_the_same_resources_are_at_the_root(server: Server):
    await server.define({"name": "a"})
    root = await server.session.get(server.url + "/workflows/flow")
    assert await root.json() == await server.get("/workflows/flow")
    for path, target in (("/", "/docs"),):
        answer = await server.session.get(server.url + path, allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (307, target)
    page = await (await server.session.get(server.url + "/docs")).text()
    assert "/api/v1/workflows/{workflow}/trigger" in page
    # Nothing on the page comes from elsewhere.
    assert "//" not in page.replace("<!doctype", "")


async def test_the_document_names_every_route_once(server: Server):
    document = await (await server.session.get(server.url + "/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert all(path.startswith("/api/v1/") for path in document["paths"])
    names = [entry["operationId"] for path in document["paths"].values() for entry in path.values()]
    assert len(names) == len(set(names))
