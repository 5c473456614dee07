"""Live events over WebSocket and as server-sent events."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from rota.api.app import close_polls
from rota.api.options import AccessOptions, ApiOptions
from rota.domain.work import Registration
from tests.api.server import Server, open_server
from tests.api.streams import follow, listen

NOWHERE = "01890a5d-ac96-774b-bcce-b302099a8057"


def _moves(events: list[dict]) -> list[tuple[str, str | None, str]]:
    """What tasks and workflows did: (name, old, new)."""
    return [
        (event["payload"].get("task") or event["payload"]["workflow"], event["payload"]["old_status"],
         event["payload"]["status"])
        for event in events
        if event["type"] != "worker_heartbeat"
    ]  # fmt: skip


async def test_a_run_as_it_happens(server: Server):
    await server.define({"name": "a"})
    async with follow(server) as updates:
        run = await server.trigger()
        await server.work()
        events = await updates.read_until("workflow_status", "success")
    assert {"type", "seq", "payload"} == set(events[0])
    assert _moves(events) == [
        ("flow", None, "running"),
        ("a", "pending", "queued"),
        ("a", "queued", "running"),
        ("a", "running", "success"),
        ("flow", "running", "success"),
    ]
    seqs = [event["seq"] for event in events if event["type"] != "worker_heartbeat"]
    assert seqs == sorted(set(seqs))
    started = events[0]["payload"]
    assert (started["id"], started["workflow_run_id"], started["namespace"]) == (run["id"], run["id"], "default")
    assert started["workflow_id"] == run["workflow_id"]
    ended = next(event["payload"] for event in events if event["type"] == "task_status")
    assert ended["task_run_id"] == ended["id"]
    assert ended["map_index"] is None
    assert ended["at"].endswith("Z")


async def test_a_worker_is_heard_of(server: Server):
    async with follow(server, "?type=worker_heartbeat") as updates:
        await server.join()
        event = await updates.read()
        assert event["type"] == "worker_heartbeat"
        assert (event["payload"]["name"], event["payload"]["old_status"]) == ("hand", None)
        await server.engine.renew(await server.join(), [])
        beat = await updates.read()
    assert (beat["payload"]["name"], beat["payload"]["status"]) == ("hand", "active")
    assert beat["payload"]["last_heartbeat"] > event["payload"]["last_heartbeat"]
    assert beat["seq"] == event["seq"]


async def test_coming_back_without_a_gap_or_a_repeat(server: Server):
    await server.define({"name": "a"})
    async with follow(server, "?type=workflow_status") as updates:
        await server.trigger()
        first = await updates.read()
    for _ in range(3):
        await server.trigger()
    async with follow(server, f"?type=workflow_status&since={first['seq']}") as updates:
        await server.trigger()
        found = await updates.read_many(4)
    everything = (await server.get("/history?entity_type=workflow_run&limit=500"))["items"]
    assert [first["seq"], *(event["seq"] for event in found)] == [row["seq"] for row in everything]
    async with follow(server, "?type=workflow_status&since=0") as updates:
        assert [event["seq"] for event in await updates.read_many(5)] == [row["seq"] for row in everything]


async def test_the_connection_says_where_it_begins(server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    address = f"{server.url}/api/v1/ws/updates"
    async with server.session.ws_connect(address) as socket:
        begins = int(socket._response.headers["X-Rota-Since"])
    assert begins == (await server.get("/history?limit=500"))["items"][-1]["seq"]


async def test_filters(server: Server):
    await server.define({"name": "a"}, name="one")
    await server.define({"name": "b"}, name="two")
    async with follow(server, "?workflow=two&type=task_status") as by_workflow:
        first, second = await server.trigger("one"), await server.trigger("two")
        assert _moves([await by_workflow.read()]) == [("b", "pending", "queued")]
        async with follow(server, f"?run={first['id']}&since=0") as by_run:
            events = await by_run.read_many(2)
        assert {event["payload"]["workflow_run_id"] for event in events} == {first["id"]}
        await server.work()
        ended = await by_workflow.read_until("task_status", "success")
    assert {event["payload"]["workflow_run_id"] for event in ended} == {second["id"]}


async def test_other_namespaces_are_not_seen(server: Server):
    for namespace in ("default", "other"):
        body = {"name": "flow", "tasks": [{"name": "a", "command": "true"}]}
        answer = await server.call("POST", f"/workflows?namespace={namespace}", body)
        assert answer.status == 201
    async with follow(server, "?type=workflow_status") as ours, follow(server, "?namespace=other") as theirs:
        answers = [
            await server.call("POST", f"/workflows/flow/trigger?namespace={namespace}", {})
            for namespace in ("other", "default", "other")
        ]
        assert {answer.status for answer in answers} == {201}
        assert (await ours.read())["payload"]["namespace"] == "default"
        for _ in range(4):
            assert (await theirs.read())["payload"]["namespace"] == "other"
    run = answers[-1].json
    async with server.session.get(f"{server.url}/events?run={run['id']}") as refused:
        assert refused.status == 404


async def test_server_sent_events(server: Server):
    await server.define({"name": "a"})
    async with listen(server, "/events?type=workflow_status") as stream:
        ready = await stream.read()
        assert ready.fields["event"] == "ready"
        await server.trigger()
        first = await stream.read()
        assert (first.data["type"], int(first.fields["id"])) == ("workflow_status", first.data["seq"])
    await server.trigger()
    async with listen(server, "/events?type=workflow_status", last_event_id=first.fields["id"]) as stream:
        assert (await stream.read()).fields["event"] == "ready"
        second = await stream.read()
    assert second.data["seq"] > first.data["seq"]
    async with listen(server, f"/events?type=workflow_status&since={ready.data['seq']}") as stream:
        assert await stream.read_many(3) == [ready.data, first.data, second.data]


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("?since=x", 422, "since"),
        ("?since=-1", 422, "since"),
        ("?since=1000", 422, "since"),
        ("?type=weather", 422, "type[0]"),
        ("?workflow=nothing", 404, None),
        (f"?run={NOWHERE}", 404, None),
        ("?run=nothing", 404, None),
        ("?namespace=..", 422, "namespace"),
    ],
)
async def test_what_cannot_be_followed_is_refused(server: Server, query: str, status: int, field: str | None):
    async with server.session.get(f"{server.url}/events{query}") as response:
        problems = [await response.json(content_type="application/problem+json")]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await server.session.ws_connect(f"{server.url}/ws/updates{query}").__aenter__()
    assert (response.status, refused.value.status) == (status, status)
    assert [fault["field"] for fault in problems[0]["errors"]] == ([field] if field else [])


async def test_a_cursor_that_is_none_is_refused(server: Server):
    async with server.session.get(f"{server.url}/events", headers={"Last-Event-ID": "soon"}) as response:
        assert response.status == 422


async def test_a_page_from_elsewhere_may_not_connect(server: Server):
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with follow(server, Origin="https://elsewhere.example"):
            pass
    assert refused.value.status == 403
    async with follow(server, Origin=server.url):
        pass


async def test_a_key_is_asked_for(database_url: str):
    options = ApiOptions(access=AccessOptions(is_open=False, token="open sesame"))
    async with open_server(database_url, options) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with follow(server):
                pass
        assert refused.value.status == 401
        async with server.session.get(f"{server.url}/events") as response:
            assert response.status == 401
        async with follow(server, Authorization="Bearer open sesame") as updates:
            await server.engine.register(Registration(name="hand", kinds=("shell",), concurrency=1))
            assert (await updates.read())["type"] == "worker_heartbeat"

    return Registration(name="hand", kinds=("shell",), concurrency=1)


async def test_a_key_that_is_revoked_ends_its_streams(database_url: str):
    async with open_server(database_url, ApiOptions(check_seconds=0.05)) as server:
        await server.make_key("root", "admin")
        viewer = await server.make_key("viewer")
        async with (
            server.session.ws_connect(f"{server.url}/ws/updates", headers=viewer) as socket,
            listen(server, "/events", **viewer) as stream,
        ):
            await stream.read()
            await server.engine.custody.revoke_key("viewer")
            server.app.state.api.access.keys.forget()
            message = await socket.receive(timeout=10)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1008)
            dropped = await stream.read()
            assert (dropped.fields["event"], dropped.data["code"]) == ("dropped", "unauthenticated")


async def test_the_end_of_the_server_ends_the_streams(server: Server):
    async with follow(server) as updates, listen(server, "/events") as stream:
        await stream.read()
        close_polls(server.app)
        message = await updates.socket.receive(timeout=10)
        assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 1001, "the server stops")
        with pytest.raises(EOFError):
            await stream.read()


async def test_what_clients_say_is_not_listened_to(server: Server):
    await server.define({"name": "a"})
    async with follow(server, "?type=workflow_status") as updates:
        await updates.socket.send_str(json.dumps({"subscribe": "everything"}))
        await updates.socket.send_bytes(b"\0" * 1000)
        await server.trigger()
        assert (await updates.read())["payload"]["status"] == "running"


async def test_many_who_come_back_at_once(server: Server):
    """All of them get everything once, and what is sent to them is read and written once."""
    await server.define({"name": "a"})
    async with follow(server, "?type=workflow_status") as updates:
        for _ in range(30):
            await server.trigger()
        known = await updates.read_many(30)
        since = known[4]["seq"]

        async def come_back() -> list[int]:
            async with follow(server, f"?type=workflow_status&since={since}") as again:
                return [event["seq"] for event in await again.read_many(26)]

        coming = asyncio.gather(*(come_back() for _ in range(60)))
        await server.trigger()
        expected = [event["seq"] for event in [*known[5:], *await updates.read_many(1)]]
        assert all(found == expected for found in await coming)
