"""Following a log while it is written."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rota.domain.work import Assignment, LogChunk
from tests.api.server import Server
from tests.api.streams import Stream, listen


async def _write(server: Server, assignment: Assignment, offset: int, data: bytes) -> None:
    chunk = LogChunk(assignment.task_run_id, assignment.attempt, offset, data)
    reply = await server.engine.report(await server.join(), [chunk])
    assert reply.results[0].is_accepted


async def _read_text(stream: Stream, text: str) -> list[dict[str, Any]]:
    """Events until they make up this text."""
    found: list[dict[str, Any]] = []
    while "".join(event["payload"]["text"] for event in found) != text:
        found.append((await stream.read()).data)
        assert found[-1]["type"] == "log"
    return found


async def test_a_log_as_it_is_written(server: Server):
    await server.define({"name": "a"})
    run = await server.trigger()
    task_run = (await server.get(f"/workflow-runs/{run['id']}"))["task_runs"][0]
    async with listen(server, f"/task-runs/{task_run['id']}/logs?follow=true") as stream:
        assert (await stream.read()).fields["event"] == "ready"
        (taken,) = await server.take()
        await _write(server, taken, 0, "Grüße\n".encode()[:3])
        await _write(server, taken, 3, "Grüße\n".encode()[3:])
        events = await _read_text(stream, "Grüße\n")
        assert events[-1]["seq"] == events[-1]["payload"]["next_offset"] == 8
        started_at = time.monotonic()
        await _write(server, taken, 8, b"more\n")
        (more,) = await _read_text(stream, "more\n")
        assert time.monotonic() - started_at < 2
        assert (more["payload"]["offset"], more["payload"]["attempt"]) == (8, 1)
        await server.finish(taken, exit_code=0)
        assert (await stream.read()).fields["event"] == "end"


async def test_a_log_is_followed_again_from_an_offset(server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    (taken,) = await server.take()
    await _write(server, taken, 0, b"one\ntwo\n")
    path = f"/task-runs/{taken.task_run_id}/logs?follow=true"
    async with listen(server, f"{path}&offset=4") as stream:
        await stream.read()
        await _read_text(stream, "two\n")
    await server.finish(taken)
    async with listen(server, path, last_event_id="4") as stream:
        await stream.read()
        await _read_text(stream, "two\n")
        assert (await stream.read()).fields["event"] == "end"


async def test_a_log_without_a_word_ends_too(server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    (taken,) = await server.take()
    async with listen(server, f"/task-runs/{taken.task_run_id}/logs?follow=true") as stream:
        await stream.read()
        ending = asyncio.ensure_future(stream.read())
        await server.finish(taken)
        assert (await ending).fields["event"] == "end"


async def test_only_what_is_there_is_followed(server: Server):
    answer = await server.call("GET", "/task-runs/01890a5d-ac96-774b-bcce-b302099a8057/logs?follow=true")
    assert answer.status == 404
