"""API keys: made, shown once, used within their bounds, expired and revoked."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import text

from rota.api.keyring import REMEMBERED, REMEMBERED_UNKNOWN
from rota.api.options import AccessOptions, ApiOptions
from rota.domain.api_key import hash_secret
from rota.store import api_keys
from rota.store.reads.pages import PageRequest
from tests.api.server import Server, open_server

KEY = re.compile(r"rota_[A-Za-z0-9_-]{43}")
FORGETFUL = ApiOptions(access=AccessOptions(remember_seconds=0))


async def _create(server: Server, root: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = await server.call("POST", "/api-keys", body, **root)
    assert answer.status == 201, answer
    return answer.json


def _show(key: str) -> dict[str, Any]:
    return {"authorization": f"Bearer {key}"}


async def test_a_key_is_shown_once_and_kept_as_a_hash(server: Server):
    root = await server.make_key("root", "admin")
    answer = await server.call("POST", "/api-keys", {"name": "ci", "role": "editor"}, **root)
    assert answer.headers["Cache-Control"] == "no-store"
    made = answer.json
    assert KEY.fullmatch(made["key"])
    assert made["prefix"] == made["key"][:12]
    assert (made["role"], made["namespaces"], made["status"], made["created_by"]) == ("editor", ["*"], "active", "root")
    for path in ("/api-keys", f"/api-keys/{made['id']}", "/api-keys/ci", "/api-keys?revoked=true"):
        assert made["key"] not in str((await server.call("GET", path, **root)).json)
    assert (await server.call("GET", answer.headers["Location"].removeprefix("/api/v1"), **root)).json["name"] == "ci"
    rows = await server.database.read(lambda tx: tx.rows(text("SELECT * FROM api_keys")))
    assert made["key"] not in str(rows)
    assert hash_secret(made["key"]) in str(rows)


async def test_a_server_on_loopback_is_open_until_there_is_an_admin_key(server: Server):
    assert (await server.call("GET", "/workflows")).status == 200
    viewer = (await _create(server, {}, name="looks"))["key"]
    assert (await server.call("GET", "/workflows")).status == 200
    # Whoever shows a key is who the key says.
    assert (await server.call("POST", "/workflows", {"name": "a"}, **_show(viewer))).status == 403
    assert (await server.call("GET", "/workflows", **_show("rota_" + "x" * 43))).status == 401
    # The token of a worker, or another program's key, is no key of ours.
    assert (await server.call("GET", "/workflows", **_show("something else"))).status == 200
    namespaced = await _create(server, {}, name="tenant", role="admin", namespaces=["a"])
    assert (await server.call("GET", "/workflows")).status == 200
    root = (await _create(server, {}, name="root", role="admin"))["key"]
    refused = await server.call("GET", "/workflows")
    assert (refused.status, refused.json["code"]) == (401, "unauthenticated")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    assert (await server.call("GET", "/healthz")).status == 200
    assert (await server.call("GET", "/workflows", **_show(root))).status == 200
    assert (await server.call("GET", "/api-keys", **_show(namespaced["key"]))).status == 403


async def test_revoked_keys_and_expired_ones(database_url: str):
    async with open_server(database_url, FORGETFUL) as server:
        root = await server.make_key("root", "admin")
        made = await _create(server, root, name="ci", expires_in_seconds=3600)
        assert (await server.call("GET", "/workflows", **_show(made["key"]))).status == 200
        assert (await server.call("DELETE", "/api-keys/ci", **root)).status == 204
        assert (await server.call("GET", "/workflows", **_show(made["key"]))).status == 401
        assert (await server.call("DELETE", f"/api-keys/{made['id']}", **root)).status == 409
        assert (await server.call("DELETE", "/api-keys/ci", **root)).status == 404
        listed = (await server.call("GET", "/api-keys?revoked=true", **root)).json["items"]
        assert [(key["name"], key["status"]) for key in listed] == [("ci", "revoked"), ("root", "active")]
        # The name is free again.
        again = await _create(server, root, name="ci", expires_in_seconds=3600)
        await server.database.transact(
            lambda tx: tx.run(text("UPDATE api_keys SET expires_at = created_at WHERE name = 'ci'"))
        )
        assert (await server.call("GET", "/workflows", **_show(again["key"]))).status == 401
        assert (await server.call("GET", "/api-keys/ci", **root)).json["status"] == "expired"


async def test_what_is_remembered_of_a_key_is_looked_at_again(database_url: str):
    """A key that another node revoked: here it counts until what is remembered of it is old."""
    async with open_server(database_url, ApiOptions(access=AccessOptions(remember_seconds=3600))) as server:
        ring = server.app.state.api.access.keys
        key = await server.make_key("ci", "viewer")
        assert (await server.call("GET", "/workflows", **key)).status == 200
        await server.database.transact(lambda tx: tx.run(text("UPDATE api_keys SET revoked_at = created_at")))
        assert (await server.call("GET", "/workflows", **key)).status == 200
        ring.forget()
        assert (await server.call("GET", "/workflows", **key)).status == 401
        # It is not remembered for longer than it lives.
        short = await server.engine.database.read(
            lambda tx: api_keys.list_keys(tx, PageRequest(), includes_revoked=True)
        )
        assert short.rows[0].status == "revoked"


async def test_memory_is_bounded_and_random_keys_displace_no_good_one(server: Server):
    ring = server.app.state.api.access.keys
    good = (await server.make_key("good", "viewer"))["authorization"].removeprefix("Bearer ")
    assert await ring.find(hash_secret(good)) is not None
    for number in range(REMEMBERED_UNKNOWN + 50):
        assert await ring.find(hash_secret(f"rota_{number}")) is None
    assert len(ring._unknown._entries) == REMEMBERED_UNKNOWN < REMEMBERED
    assert len(ring._known._entries) == 1


async def test_the_last_use_is_noted_once_a_minute(database_url: str):
    async with open_server(database_url, FORGETFUL) as server:
        root = await server.make_key("root", "admin")
        assert (await server.call("GET", "/api-keys/root", **root)).json["last_used_at"] is not None
        first = (await server.call("GET", "/api-keys/root", **root)).json["last_used_at"]
        assert (await server.call("GET", "/api-keys/root", **root)).json["last_used_at"] == first


async def test_one_can_always_make_another_key(server: Server):
    root = await server.make_key("root", "admin")
    kept = await server.call("DELETE", "/api-keys/root", **root)
    assert (kept.status, kept.json["code"]) == (409, "conflict")
    await server.make_key("tenant", "admin", namespaces=("a",))
    assert (await server.call("DELETE", "/api-keys/root", **root)).status == 409
    await server.make_key("second", "admin")
    assert (await server.call("DELETE", "/api-keys/root", **root)).status == 204


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "a\u0000"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "\u202ereversed"}, "name"),
        ({"name": "token"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "01890a5d-ac96-774b-bcce-b302099a8057"}, "name"),
        ({"name": "a", "role": "root"}, "role"),
        ({"name": "a", "namespaces": []}, "namespaces"),
        ({"name": "a", "namespaces": ["*", "a"]}, "namespaces"),
        ({"name": "a", "namespaces": ["A'; DROP TABLE api_keys; --"]}, "namespaces[0]"),
        ({"name": "a", "role": "worker", "namespaces": ["a"]}, "namespaces"),
        ({"name": "a", "expires_in_seconds": 0}, "expires_in_seconds"),
        ({"name": "a", "expires_in_seconds": 1e300}, "expires_in_seconds"),
        ({"name": "a", "key": "rota_mine"}, "key"),
    ],
    ids=str,
)
async def test_bad_input(server: Server, body: dict[str, Any], field: str):
    answer = await server.call("POST", "/api-keys", body)
    assert answer.status == 422, answer
    assert field in [fault["field"] for fault in answer.json["errors"]]
    assert (await server.get("/api-keys"))["items"] == []


async def test_names_are_unique_among_keys_that_are_good(server: Server):
    root = await server.make_key("root", "admin")
    await _create(server, root, name="Ünïcode 鍵 'quoted' {{ braces }}")
    again = await server.call("POST", "/api-keys", {"name": "Ünïcode 鍵 'quoted' {{ braces }}"}, **root)
    assert (again.status, again.json["errors"][0]["field"]) == (409, "name")


@pytest.mark.parametrize(
    "shown",
    [
        *("Bearer", "Bearer ", "Basic cm90YTpyb3Rh", "bearer rota_", "Bearer rota_' OR '1'='1", "Bearer rota_%00"),
        *("Bearer rota_" + "x" * 5000, "Bearer rota_\u00ff", "rota_abc", "Bearer null", "Token rota_x"),
    ],
)
async def test_what_is_no_key_opens_nothing(server: Server, shown: str):
    await server.make_key("root", "admin")
    answer = await server.call("GET", "/workflows", authorization=shown)
    assert (answer.status, answer.json["code"]) == (401, "unauthenticated")
    assert shown not in answer.json["detail"] or len(shown) < 10
