"""Browsers: signing in and out, forged requests, tickets, pages from elsewhere."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from rota.api.access import Access
from rota.api.options import AccessOptions, ApiOptions
from rota.api.permissions import Need
from rota.api.sessions import COOKIE
from rota.domain.access import Permission, Principal, Role
from rota.domain.errors import Forbidden, Unauthenticated
from rota.store.database import Database, DatabaseOptions
from tests.api.server import Server, open_server
from tests.store.contents import find_tables_with

VIEW = Need(Permission.VIEW)


async def _sign_in(server: Server, key: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header of a browser that is signed in, and what it was told."""
    shown = key["authorization"].removeprefix("Bearer ")
    answer = await server.call("POST", "/session", {"key": shown})
    assert answer.status == 201, answer
    cookie = answer.headers["Set-Cookie"]
    assert re.search(r"; HttpOnly; .*Path=/; SameSite=strict", cookie)
    assert "Max-Age=43200" in cookie
    assert answer.headers["Cache-Control"] == "no-store"
    # This client keeps no cookies of its own.
    server.session.cookie_jar.clear()
    return {"cookie": cookie.split(";")[0]}, answer.json


async def test_a_browser_signs_in_and_out(server: Server):
    root = await server.make_key("root", "admin")
    browser, told = await _sign_in(server, root)
    assert (told["name"], told["role"], told["kind"]) == ("root", "admin", "key")
    assert (await server.call("GET", "/workflows", **browser)).status == 200
    again = (await server.call("GET", "/session", **browser)).json
    assert again == told
    token = browser["cookie"].partition("=")[2]
    assert await find_tables_with(server.database, token, told["csrf_token"]) == []
    assert (await server.call("DELETE", "/session", **browser)).status == 403
    gone = await server.call("DELETE", "/session", **browser, x_csrf_token=told["csrf_token"])
    assert gone.status == 204
    assert re.search(rf'{COOKIE}="?"?; .*Max-Age=0', gone.headers["Set-Cookie"])
    server.session.cookie_jar.clear()
    assert (await server.call("GET", "/workflows", **browser)).status == 401


async def test_a_change_takes_the_token_of_the_session(server: Server):
    root = await server.make_key("root", "admin")
    browser, told = await _sign_in(server, root)
    _other, others = await _sign_in(server, root)
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"x_csrf_token": ""},
        {"x_csrf_token": "x"},
        {"x_csrf_token": others["csrf_token"]},
    )
    for shown in wrong:
        refused = await server.call("PUT", "/pools/p", {"slots": 1}, **browser, **shown)
        assert (refused.status, refused.json["code"]) == (403, "csrf")
    right: dict[str, Any] = {"x_csrf_token": told["csrf_token"]}
    assert (await server.call("PUT", "/pools/p", {"slots": 1}, **browser, **right)).status == 201
    foreign = await server.call("PUT", "/pools/p", {"slots": 1}, **browser, **right, origin="http://example.org")
    assert (foreign.status, foreign.json["code"]) == (403, "cross_origin")
    own = await server.call("PUT", "/pools/p", {"slots": 1}, **browser, **right, origin=server.url)
    assert own.status == 200
    # A key goes before the cookie, and no page can make a browser send one.
    assert (await server.call("PUT", "/pools/p", {"slots": 1}, **browser, **root)).status == 200


async def test_a_session_ends_with_its_key(database_url: str):
    async with open_server(database_url, ApiOptions(access=AccessOptions(remember_seconds=0))) as server:
        root = await server.make_key("root", "admin")
        browser, _told = await _sign_in(server, await server.make_key("ci", "viewer"))
        assert (await server.call("GET", "/workflows", **browser)).status == 200
        assert (await server.call("DELETE", "/api-keys/ci", **root)).status == 204
        assert (await server.call("GET", "/workflows", **browser)).status == 401


async def test_nobody_signs_in_with_a_wrong_key(server: Server):
    await server.make_key("root", "admin")
    for wrong in ("rota_" + "x" * 43, "x", "' OR 1=1 --"):
        answer = await server.call("POST", "/session", {"key": wrong})
        assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
        assert wrong not in answer.json["detail"] or wrong == "x"
    assert (await server.call("POST", "/session", {"key": ""})).status == 422
    for cookie in (COOKIE, f"{COOKIE}=", f"{COOKIE}=x", f"{COOKIE}=' OR '1'='1"):
        assert (await server.call("GET", "/workflows", cookie=cookie)).status == 401


def _socket(ticket: str = "", **headers: str) -> HTTPConnection:
    given = {"host": "127.0.0.1:8080", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    query = f"ticket={ticket}".encode() if ticket else b""
    return HTTPConnection(
        {"type": "websocket", "path": "/ws/updates", "query_string": query, "headers": raw, "client": ("127.0.0.1", 1)}
    )


async def test_a_ticket_opens_one_socket_on_any_node(server: Server, database_url: str):
    root = await server.make_key("root", "admin")
    made = (await server.call("POST", "/ws-tickets", **root)).json
    assert await find_tables_with(server.database, made["ticket"]) == []
    other = Database(DatabaseOptions(database_url))
    access: Access = server.app.state.api.access
    nodes = [access, Access(AccessOptions(), other)] * 3

    async def redeem(node: Access) -> Principal | None:
        try:
            return await node.admit(_socket(made["ticket"]), VIEW)
        except Unauthenticated:
            return None

    try:
        found = [who for who in await asyncio.gather(*map(redeem, nodes)) if who is not None]
    finally:
        await other.close()
    assert [(who.name, who.role) for who in found] == [("root", Role.ADMIN)]
    # It is no session, and nothing for other requests.
    again = (await server.call("POST", "/ws-tickets", **root)).json["ticket"]
    assert (await server.call("GET", f"/workflows?ticket={again}")).status == 401
    assert (await server.call("GET", "/workflows", cookie=f"{COOKIE}={again}")).status == 401


async def test_a_ticket_is_good_for_half_a_minute(server: Server):
    access: Access = server.app.state.api.access
    await server.make_key("root", "admin")
    late = await access.sessions.open(Principal("root", Role.ADMIN, kind="key", key_hash="0" * 64), -1, is_ticket=True)
    with pytest.raises(Unauthenticated):
        await access.admit(_socket(late.token), VIEW)
    await server.engine.prune(3600)
    assert await find_tables_with(server.database, "0" * 64) == []


async def test_sockets_show_headers_or_cookies_too(server: Server):
    access: Access = server.app.state.api.access
    root = await server.make_key("root", "admin")
    browser, _told = await _sign_in(server, root)
    for shown in (root, browser, {**browser, "origin": "http://127.0.0.1:8080"}):
        principal = await access.admit(_socket(**shown), VIEW)
        assert principal is not None
        assert principal.name == "root"
    with pytest.raises(Forbidden, match="elsewhere"):
        await access.admit(_socket(**browser, origin="http://example.org"), VIEW)
    with pytest.raises(Unauthenticated):
        await access.admit(_socket(), VIEW)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "rota.example.org"}, 403),
        ({"host": "127.0.0.1.example.org"}, 403),
        ({"host": "127.evil"}, 403),
        ({"origin": "http://example.org"}, 403),
        ({"origin": "null"}, 403),
    ],
    ids=str,
)
async def test_an_open_server_answers_no_pages_from_elsewhere(server: Server, headers: dict[str, Any], status: int):
    answer = await server.call("GET", "/workflows", **headers)
    assert answer.status == status
    if status == 403:
        assert answer.json["code"] == "cross_origin"


async def test_too_many_requests(database_url: str):
    options = ApiOptions(access=AccessOptions(rate_limit=1, remember_seconds=0))
    async with open_server(database_url, options) as server:
        key = await server.make_key("root", "admin")
        answers = [await server.call("GET", "/session", **key) for _ in range(8)]
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) >= 4
        assert {answer.json["code"] for answer in refused} == {"too_many_requests"}
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        # Workers are not held up.
        worker = await server.make_key("machine", "worker")
        for _ in range(8):
            assert (await server.call("POST", "/workers/register", {}, **worker)).status == 201


async def test_guessing_is_slowed_down(database_url: str):
    async with open_server(database_url, ApiOptions(access=AccessOptions(rate_limit=1000))) as server:
        await server.make_key("root", "admin")
        wrong: dict[str, Any] = {"authorization": "Bearer rota_wrong"}
        statuses = [(await server.call("GET", "/workflows", **wrong)).status for _ in range(30)]
        assert statuses[:20] == [401] * 20
        assert 429 in statuses[20:]
        # The other door is watched as well.
        doors = [(await server.call("POST", "/session", {"key": "rota_wrong"})).status for _ in range(3)]
        assert 429 in doors
