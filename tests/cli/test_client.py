"""The client: errors come back as what they were, and servers stand in for each other."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from rota.client.http import UNREACHABLE, Client
from rota.domain import errors

GONE = "http://127.0.0.1:1"


class Stub:
    """A server that answers with what it is told, and notes what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b"{}"
        self.requests: list[tuple[str, str, bytes, str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        key = request.headers.get("Authorization", "")
        self.requests.append((request.method, str(request.rel_url), await request.read(), key))
        return web.Response(status=self.status, body=self.body, content_type="application/json")


@pytest.fixture
def stub() -> Iterator[Stub]:
    found = Stub()
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", found.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def serve() -> None:
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(10)
    yield found
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def test_a_request_carries_query_body_and_key(stub):
    stub.body = b'{"items": [1]}'
    client = Client([stub.url], token="k")
    assert client.get("/things", {"status": ["a", "b"], "limit": 5, "raw": True, "left_out": None}) == {"items": [1]}
    client.post("/things", {"name": "x"})
    get, post = stub.requests
    assert get == ("GET", "/api/v1/things?status=a&status=b&limit=5&raw=true", b"", "Bearer k")
    assert (post[0], json.loads(post[2])) == ("POST", {"name": "x"})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.Unauthenticated),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (412, errors.StaleVersion),
        (413, errors.TooLarge),
        (422, errors.InvalidInput),
        (429, errors.TooManyRequests),
        (500, errors.RotaError),
        (503, errors.Unavailable),
        (507, errors.CapacityExceeded),
    ],
)
def test_a_problem_is_raised_as_the_error_that_it_was(stub, status, kind):
    stub.status = status
    stub.body = json.dumps(
        {"code": "some_code", "detail": "no", "errors": [{"field": "a.b", "reason": "why"}]}
    ).encode()
    with pytest.raises(kind) as caught:
        Client([stub.url]).get("/x")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.detail) == ("some_code", "no")
    if kind is errors.InvalidInput:
        assert caught.value.errors == (errors.FieldError("a.b", "why"),)


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b""])
def test_an_error_that_is_no_problem_json(stub, body):
    stub.status, stub.body = 502, body
    with pytest.raises(errors.RotaError, match="the server answered 502"):
        Client([stub.url]).get("/x")


def test_an_answer_that_is_not_json(stub):
    stub.body = b"<html>"
    with pytest.raises(errors.RotaError, match="is it a Rota server"):
        Client([stub.url]).get("/x")


def test_the_next_server_stands_in(stub):
    assert Client([GONE, stub.url]).get("/x") == {}


def test_no_server_at_all():
    with pytest.raises(errors.Unavailable, match=r"Connection refused.*rota up") as caught:
        Client([GONE]).get("/x")
    assert caught.value.code == UNREACHABLE


@pytest.mark.parametrize(("status", "code"), [(404, 3), (422, 2), (409, 5), (401, 6), (503, 4), (500, 1)])
def test_errors_become_exit_codes(run, stub, status, code):
    stub.status, stub.body = status, b'{"code": "c", "detail": "because"}'
    done = run("runs", "show", "x", "--server", stub.url)
    assert (done.code, done.errors) == (code, "error: because\n")


def test_json_is_what_the_server_said(run, stub):
    stub.body = b'{"items": [], "total": 0, "next_cursor": null}'
    assert json.loads(run("runs", "list", "--json", "--server", stub.url).output) == json.loads(stub.body)
    assert run("runs", "list", "--server", stub.url).output == "no runs\n"


def test_parameters_are_json_or_text(run, stub):
    stub.body = b'{"id": "r", "status": "running"}'
    given = ("-p", "n=5", "-p", "day=2026-01-01", "-p", 'list=["a"]', "-p", "empty=")
    assert run("workflow", "trigger", "w", *given, "--server", stub.url).code == 0
    sent = json.loads(stub.requests[0][2])
    assert sent == {"params": {"n": 5, "day": "2026-01-01", "list": ["a"], "empty": ""}}
    assert run("workflow", "trigger", "w", "-p", "x", "--server", stub.url).code == 2
