"""Addresses and the endpoints behind them."""

from __future__ import annotations

import socket
from typing import Any

from fastapi.routing import iter_route_contexts
from starlette.routing import Match

from rota.api.dispatch import Dispatcher
from rota.app.http_server import HttpServer
from tests.api.server import Server

# Words that are found where a parameter is expected, too, and the other way round.
PARTS = ("workflows", "workflow-runs", "jobs", "bulk", "grid", "x", "runs", "trigger", "", "1", "..", "%2f", "register")


async def test_the_dispatcher_finds_what_the_framework_finds(server: Server):
    routes = [route for route in iter_route_contexts(server.app.routes) if getattr(route, "methods", None)]
    assert len(routes) > 100
    dispatcher = server.app.router.middleware_stack
    assert isinstance(dispatcher, Dispatcher)
    depth = [(), *((one,) for one in PARTS), *((one, two) for one in PARTS for two in PARTS)]
    depth += [(one, two, three) for one in PARTS for two in PARTS for three in ("runs", "trigger", "tasks", "x")]
    for prefix in ("", "/api/v1"):
        for parts in depth:
            for method in ("GET", "POST", "PUT", "PATCH"):
                path = "/".join((prefix, *parts)) or "/"
                scope: dict[str, Any] = {"type": "http", "path": path, "method": method, "headers": [], "root_path": ""}
                expected = next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)
                found = dispatcher.find(path, method)
                if expected is None:
                    assert found is None, (method, path)
                    continue
                assert found is not None, (method, path)
                endpoint, parameters = found
                assert endpoint.route.endpoint is expected.endpoint, (method, path)
                assert parameters == expected.matches(scope)[1]["path_params"], (method, path)


async def test_answers_are_not_held_back():
    """Without the protocol's name asyncio leaves Nagle's algorithm on, which holds each answer back for 40 ms."""
    server = HttpServer("127.0.0.1", 0)
    try:
        assert server.protocol == socket.IPPROTO_TCP
    finally:
        server.close()
