"""The Python client against a real server, and against one that stumbles."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from rota.app.connections import StreamingWebSocket
from rota.client import AsyncClient, Client, LiveEvent
from rota.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from tests.api.server import Server, open_server

FLOW = {"name": "flow", "tasks": [{"name": "a", "command": "true"}]}


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[Server]:
    async with open_server(database_url) as opened:
        yield opened


async def test_a_run_from_definition_to_end(server: Server):
    async with AsyncClient(server.url) as client:
        await client.apply(FLOW)
        run = await client.trigger("flow")
        waiting = asyncio.ensure_future(client.wait(run["id"]))
        await server.work()
        ended = await waiting
        assert (ended["status"], ended["task_runs"][0]["status"]) == ("success", "success")
        assert (await client.read_run(run["id"]))["id"] == run["id"]
        with pytest.raises(Conflict):
            await client.cancel_run(run["id"])


async def test_the_same_key_creates_one_thing(server: Server):
    async with AsyncClient(server.url) as client:
        await client.apply(FLOW)
        first = await client.trigger("flow", idempotency_key="once")
        assert (await client.trigger("flow", idempotency_key="once"))["id"] == first["id"]
        assert (await client.trigger("flow"))["id"] != first["id"]
        job = await client.submit_job(command="true", idempotency_key="job")
        assert (await client.submit_job(command="true", idempotency_key="job"))["id"] == job["id"]


async def test_all_pages_of_a_list(server: Server):
    async with AsyncClient(server.url) as client:
        await client.apply(FLOW)
        made = [(await client.trigger("flow"))["id"] for _ in range(5)]
        found = [run["id"] async for run in client.iterate("/workflow-runs", limit=2)]
        assert found == made[::-1]
        assert [run["id"] async for run in client.list_runs(status=["failed"])] == []


async def test_refusals_are_raised_as_they_were_there(server: Server):
    async with AsyncClient(server.url) as client:
        with pytest.raises(NotFound):
            await client.trigger("nothing")
        with pytest.raises(InvalidInput) as refused:
            await client.apply({"name": "flow", "tasks": [{"name": "a", "command": "true", "colour": "red"}]})
        assert refused.value.errors
        with pytest.raises(NotFound):
            await anext(client.watch(workflow="nothing"))


async def test_watching_goes_on_through_lost_connections(server: Server):
    """The server drops everybody again and again; every change is told once."""
    async with AsyncClient(server.url) as client:
        await client.apply(FLOW)
        events: list[LiveEvent] = []
        watching = client.watch(types=("workflow_status",))
        first = asyncio.ensure_future(anext(watching))
        await _wait_for_follower(server)
        made = []
        for turn in range(4):
            made += [(await client.trigger("flow"))["id"] for _ in range(3)]
            events.append(await first if turn == 0 else await anext(watching))
            # Broken below the protocol, without a word.
            for connection in _find_sockets():
                connection.transport.abort()
        events += [await anext(watching) for _ in range(len(made) - len(events))]
        await watching.aclose()
    assert [event.payload["id"] for event in events] == made
    assert [event.seq for event in events] == sorted({event.seq for event in events})


async def _wait_for_follower(server: Server) -> None:
    async with asyncio.timeout(10):
        while not server.hub.follower_count:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.005)


def _find_sockets() -> list[StreamingWebSocket]:
    """The server's ends of all WebSocket connections."""
    return [one for one in gc.get_objects() if type(one) is StreamingWebSocket and not one.disconnected]


async def test_what_cannot_be_reached_is_said(server: Server):
    async with AsyncClient("http://127.0.0.1:9", retries=1) as client:
        with pytest.raises(Unavailable, match="no Rota server answers"):
            await client.read_run("x")
    async with AsyncClient(["http://127.0.0.1:9", server.url]) as client:
        await client.apply(FLOW)


async def test_a_busy_server_is_asked_again_with_the_same_key():
    seen: list[str] = []

    async def refuse_at_first(request: web.Request) -> web.Response:
        seen.append(request.headers["Idempotency-Key"])
        if len(seen) < 3:
            return web.Response(status=503, headers={"Retry-After": "0"})
        return web.json_response({"id": "1"})

    async def refuse(request: web.Request) -> web.Response:
        seen.append("retry")
        return web.Response(status=503)

    app = web.Application()
    app.router.add_post("/api/v1/jobs", refuse_at_first)
    app.router.add_post("/api/v1/workflow-runs/x/cancel", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with AsyncClient(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
        assert await client.submit_job(command="true") == {"id": "1"}
        assert len(set(seen)) == 1
        # Without a key nobody knows whether it was done.
        with pytest.raises(Unavailable):
            await client.cancel_run("x")
        assert seen.count("retry") == 1
    await runner.cleanup()


async def test_plain_code_has_the_same_calls(server: Server):
    def use() -> tuple[str, list[str], list[str]]:
        with Client(server.url) as client:
            client.apply(FLOW)
            run = client.trigger("flow")
            told = client.watch(since=0, run=run["id"])
            states = [next(told).payload["status"], next(told).payload["status"]]
            told.close()  # type: ignore[attr-defined]
            client.cancel_run(run["id"], "enough")
            return client.wait(run["id"])["status"], [row["id"] for row in client.list_runs()], states

    status, runs, states = await asyncio.to_thread(use)
    assert (status, len(runs), states) == ("cancelled", 1, ["running", "queued"])
