"""Secrets: kept encrypted, given to tasks alone, never shown."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from rota.engine.vault import Vault, read_keys, write_new_key
from tests.api.server import Server, open_server
from tests.store.contents import find_tables_with

VALUE = "m4rked-s3cret-value"
KEYS = [os.urandom(32) for _ in range(2)]


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[Server]:
    async with open_server(database_url, vault=Vault(KEYS[:1])) as opened:
        yield opened


async def _put(server: Server, name: str = "TOKEN", value: str = VALUE, namespace: str = "default") -> int:
    return (await server.call("PUT", f"/secrets/{name}?namespace={namespace}", {"value": value})).status


async def _error(server: Server, run: dict[str, Any]) -> str:
    detail = await server.get(f"/workflow-runs/{run['id']}")
    assert detail["status"] == "failed"
    found = await server.get(f"/task-runs/{detail['task_runs'][0]['id']}")
    return str(found["error"])


async def test_a_value_is_written_and_never_read(server: Server):
    assert await _put(server) == 201
    assert await _put(server) == 200
    one = await server.get("/secrets/TOKEN")
    assert (one["name"], one["namespace"]) == ("TOKEN", "default")
    assert one["key_id"] == Vault(KEYS[:1]).key_id
    assert VALUE not in str(one) + str(await server.get("/secrets"))
    assert await find_tables_with(server.database, VALUE) == []
    assert (await server.call("DELETE", "/secrets/TOKEN")).status == 204
    for method in ("GET", "DELETE"):
        assert (await server.call(method, "/secrets/TOKEN")).status == 404
    assert (await server.get("/secrets")) == {"items": [], "total": 0}


async def test_only_the_task_that_names_it_gets_it(server: Server):
    await _put(server)
    await _put(server, "OTHER", "another value")
    await server.define(
        {"name": "a", "command": "curl -H {{ secrets.TOKEN }}", "env": {"T": "x{{ secrets['TOKEN'] }}"}},
        {"name": "b", "command": "true {{ params.p }}"},
        {"name": "c", "command": None, "http": {"url": "http://example.org", "payload": {"t": "{{ secrets.TOKEN }}"}}},
        params={"p": {"default": 1}},
    )
    run = await server.trigger()
    taken = {item.task: item for item in await server.take(10)}
    assert taken["a"].spec["command"] == f"curl -H {VALUE}"
    assert taken["a"].spec["env"] == {"T": f"x{VALUE}"}
    assert taken["c"].spec["http"]["payload"] == {"t": VALUE}
    assert [VALUE in taken[name].secrets for name in "abc"] == [True, False, True]
    assert "another value" not in str(taken)
    for item in taken.values():
        await server.finish(item)
    shown = [
        await server.get(f"/workflow-runs/{run['id']}"),
        await server.get("/history"),
        await server.get("/task-runs"),
    ]
    shown += [await server.get("/workflows/flow"), await server.get(f"/workflow-runs/{run['id']}/history")]
    assert VALUE not in str(shown)
    assert await find_tables_with(server.database, VALUE) == []


async def test_the_value_that_was_put_last_counts(server: Server):
    await server.define({"name": "a", "command": "x {{ secrets.TOKEN }}", "retry_count": 1, "retry_delay_seconds": 0})
    await _put(server, value="first")
    await server.trigger()
    (item,) = await server.take()
    assert item.spec["command"] == "x first"
    await _put(server, value="second")
    await server.finish(item, "failed")
    await server.engine.release_due()
    (item,) = await server.take()
    assert item.spec["command"] == "x second"
    await server.finish(item)


async def test_what_must_be_hidden_in_logs(server: Server):
    pem = "-----BEGIN KEY-----\nc2VjcmV0\n}\n-----END KEY-----\n"
    await _put(server, "PEM", pem)
    await _put(server, "QUOTED", 'say "it"')
    await server.define({"name": "a", "command": "{{ secrets.PEM }} {{ secrets.QUOTED }}"})
    await server.trigger()
    (item,) = await server.take()
    assert {pem, pem.rstrip(), "-----BEGIN KEY-----", "c2VjcmV0", 'say "it"', 'say \\"it\\"'} <= set(item.secrets)
    assert "}" not in item.secrets
    await server.finish(item)


async def test_a_secret_that_is_missing_fails_the_task_with_the_reason(server: Server):
    await _put(server, "ELSEWHERE", namespace="other")
    await server.define({"name": "a", "command": "{{ secrets.ELSEWHERE }}"})
    run = await server.trigger()
    assert await server.take() == []
    assert "there is no secret ELSEWHERE in namespace default" in await _error(server, run)
    assert (await server.call("GET", "/secrets/ELSEWHERE")).status == 404


async def test_errors_do_not_tell_the_value(server: Server):
    await _put(server)
    await server.define({"name": "a", "command": "{{ tasks[secrets.TOKEN].output }}"})
    run = await server.trigger()
    assert await server.take() == []
    assert "'***'" in await _error(server, run)
    assert await find_tables_with(server.database, VALUE) == []


async def test_a_value_that_was_moved_or_changed_stays_closed(server: Server):
    await _put(server, "A")
    await _put(server, "B", "other")
    await server.database.transact(
        lambda tx: tx.run(
            text("UPDATE secrets SET ciphertext = (SELECT ciphertext FROM secrets WHERE name = 'A') WHERE name = 'B'")
        )
    )
    await server.define({"name": "a", "command": "{{ secrets.B }}"})
    run = await server.trigger()
    assert await server.take() == []
    assert "changed or moved" in await _error(server, run)


async def test_without_a_key_there_are_no_secrets(database_url: str):
    async with open_server(database_url, vault=Vault(KEYS[:1])) as server:
        await _put(server)
        await server.define({"name": "a", "command": "{{ secrets.TOKEN }}"})
    async with open_server(database_url) as server:
        answer = await server.call("PUT", "/secrets/NEW", {"value": VALUE})
        assert (answer.status, answer.json["code"]) == (409, "no_secret_key")
        assert "ROTA_SECRET_KEY" in answer.json["detail"]
        assert (await server.call("POST", "/secrets/rotate")).status == 409
        run = await server.trigger()
        assert await server.take() == []
        reason = await _error(server, run)
        assert Vault(KEYS[:1]).key_id in reason
        assert "ROTA_SECRET_KEY" in reason


async def test_rotation(database_url: str):
    async with open_server(database_url, vault=Vault(KEYS[:1])) as server:
        for number in range(3):
            await _put(server, f"S{number}", f"value {number}")
        await server.define({"name": "a", "command": "{{ secrets.S0 }}|{{ secrets.S2 }}"})
    old_and_new = Vault([KEYS[1], KEYS[0]])
    async with open_server(database_url, vault=old_and_new) as server:
        await _put(server, "S1", "value 1")
        assert (await server.get("/secrets/S1"))["key_id"] == old_and_new.key_id
        updated = (await server.get("/secrets/S0"))["updated_at"]
        assert (await server.call("POST", "/secrets/rotate")).json == {"rotated": 2, "unreadable": []}
        assert (await server.call("POST", "/secrets/rotate")).json == {"rotated": 0, "unreadable": []}
        assert (await server.get("/secrets/S0"))["updated_at"] == updated
    async with open_server(database_url, vault=Vault(KEYS[1:])) as server:
        await server.trigger()
        (item,) = await server.take()
        assert item.spec["command"] == "'value 0'|'value 2'"
    async with open_server(database_url, vault=Vault([os.urandom(32)])) as server:
        assert (await server.call("POST", "/secrets/rotate")).json == {
            "rotated": 0,
            "unreadable": ["default/S0", "default/S1", "default/S2"],
        }


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"command": "{{ secrets }}"}, "secrets.NAME"),
        ({"command": "{{ secrets[params.x] }}"}, "secrets.NAME"),
        ({"command": "{{ secrets | json }} {{ secrets.A }}"}, "secrets.NAME"),
        ({"command": "true", "when": "secrets.A == 'x'"}, "there is no secrets"),
        ({"command": "true", "concurrency_key": "{{ secrets.A }}"}, "worker executes"),
        ({"wait": {"until": "{{ secrets.A }}"}}, "worker executes"),
        ({"approval": {"message": "{{ secrets.A }}"}}, "worker executes"),
    ],
    ids=str,
)
async def test_where_secrets_may_not_be_named(server: Server, task: dict[str, Any], reason: str):
    answer = await server.call("POST", "/workflows", {"name": "flow", "tasks": [{"name": "a", **task}]})
    assert answer.status == 422
    assert reason in answer.json["detail"]


@pytest.mark.parametrize("name", ["a-b", "1st", "a b", "é", "x" * 101, "a'--", "{{x}}", "%24(id)", "..%2f", "\u202e"])
async def test_bad_names(server: Server, name: str):
    answer = await server.call("PUT", f"/secrets/{name}", {"value": VALUE})
    assert answer.status in (404, 422), answer
    assert (await server.get("/secrets"))["total"] == 0


@pytest.mark.parametrize(
    "body",
    [{}, {"value": ""}, {"value": None}, {"value": 5}, {"value": "a\0b"}, {"value": VALUE * 5000}, {"valeu": VALUE}],
    ids=lambda body: str(body)[:30],
)
async def test_bad_values_are_not_repeated(server: Server, body: dict[str, Any]):
    answer = await server.call("PUT", "/secrets/A", body)
    assert answer.status == 422
    assert VALUE not in answer.body.decode()
    assert (await server.get("/secrets"))["total"] == 0


NAUGHTY = [
    "'; DROP TABLE secrets; --",
    "{{ 7*7 }}",
    "$(id)",
    "\u202e\u0000"[:1],
    "🔑\n\ttabs",
    "\\u0000",
    "%s%n",
    "\ufeff",
    " ",
]


@pytest.mark.parametrize("value", NAUGHTY, ids=ascii)
async def test_values_arrive_as_they_are(server: Server, value: str):
    assert await _put(server, value=value) == 201
    await server.define({"name": "a", "command": "x", "env": {"V": "{{ secrets.TOKEN }}"}})
    await server.trigger()
    (item,) = await server.take()
    assert item.spec["env"]["V"] == value


def test_keys_are_read_strictly():
    one, two = write_new_key(), write_new_key()
    assert len(read_keys(f"{one},{two}\n")) == 2
    for wrong in ("", "  ", "x", one[:-4], one + "A", f"{one}, short", "é" * 44):
        with pytest.raises(ValueError, match="32 bytes in base64") as refused:
            read_keys(wrong)
        assert one[:20] not in str(refused.value)
    assert one not in repr(Vault(read_keys(one)))
