"""Waits for HTTP: asked again and again by whichever node is there, outside of any transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from rota.domain.states import Holder
from rota.engine.polls import TAKEN_SECONDS, PollResult, choose_interval
from rota.scheduler.polls import PollDuty
from tests.engine.invariants import find_faults
from tests.engine.stage import Stage, open_node, open_stage, task
from tests.servers.sink import Sink, serve

LOOPBACK = ("127.0.0.0/8",)


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    async with open_stage(database_url) as opened:
        yield opened
        assert not await find_faults(opened.database)


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = Sink()
    runner = await serve(sink)
    yield sink
    await runner.cleanup()


@pytest.fixture
async def duty(stage: Stage) -> AsyncIterator[PollDuty]:
    async with PollDuty(stage.engine, LOOPBACK) as opened:
        yield opened


def _status(status: int, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: web.Response(status=status, headers=named)


async def _start(stage: Stage, url: str, http: dict[str, Any] | None = None, **fields: Any) -> str:
    wait = {"http": {"url": "{{ params.base }}/ready?key=abc", "headers": {"X-Key": "{{ ds }}"}, **(http or {})}}
    workflow_id = await stage.define(task("ready", wait=wait, **fields), task("b", "ready"))
    return await stage.submit(workflow_id, params={"base": url})


async def _row(stage: Stage, run_id: str) -> Any:
    return (await stage.task_rows(run_id))["ready"]


async def _round(duty: PollDuty) -> int:
    count = await duty.run_once()
    await duty.join()
    return count


async def test_it_is_asked_until_the_answer_is_as_expected(stage: Stage, sink: Sink, duty: PollDuty):
    sink.handler = _status(404)
    run_id = await _start(stage, sink.url, output="json")
    assert await _round(duty) == 1
    row = await _row(stage, run_id)
    asked = {"method": "GET", "url": f"{sink.url}/ready"}
    assert (row.status, row.holder) == ("running", Holder.POLL)
    assert row.waiting_for == {**asked, "polls": 1, "last": "status 404 Not Found"}
    assert (row.due_at - stage.clock.now).total_seconds() == 30
    found = await stage.engine.explain_task_run(row.id)
    assert (found.code, found.next_check_at) == ("waiting", row.due_at)
    assert "1 times so far, the last answer was status 404" in found.sentence
    stage.clock.advance(29)
    assert await _round(duty) == 0
    # Neither the clock's loop nor its batches know of polls.
    assert (await stage.engine.find_next_due())[0] is None
    sink.handler = lambda _request: web.json_response({"rows": 3})
    stage.clock.advance(1)
    assert await stage.engine.serve_due() == 0
    assert await _round(duty) == 1
    row = await _row(stage, run_id)
    assert (row.status, row.output, row.error) == ("success", {"rows": 3}, None)
    assert [(method, path) for method, path, _headers, _body in sink.requests] == [("GET", "/ready")] * 2
    assert sink.requests[0][2]["x-key"] == "2026-01-05"
    assert await stage.work(await stage.register()) == ["b"]


async def test_what_counts_is_what_is_expected(stage: Stage, sink: Sink, duty: PollDuty):
    sink.handler = _status(404)
    run_id = await _start(stage, sink.url, {"method": "HEAD", "expect": [404, "5xx"]})
    await _round(duty)
    row = await _row(stage, run_id)
    assert (row.status, row.output, sink.requests[0][0]) == ("success", None, "HEAD")


async def test_its_timeout_is_its_deadline_and_its_retries_ask_anew(stage: Stage, sink: Sink, duty: PollDuty):
    sink.handler = _status(503)
    run_id = await _start(stage, sink.url, timeout_seconds=40, retry_count=1, retry_delay_seconds=5)
    await _round(duty)
    stage.clock.advance(30)
    await _round(duty)
    row = await _row(stage, run_id)
    # At the deadline, which comes before the next poll.
    assert (row.due_at - stage.clock.now).total_seconds() == 10
    stage.clock.advance(10)
    assert await _round(duty) == 1
    assert len(sink.requests) == 2
    row = await _row(stage, run_id)
    assert (row.status, row.error_type) == ("retrying", "timeout")
    assert row.error == "no answer as expected within 40 seconds; the last one: status 503 Service Unavailable"
    stage.clock.advance(5)
    assert await stage.engine.release_due() == 1
    row = await _row(stage, run_id)
    assert (row.status, row.attempt, row.waiting_for["polls"]) == ("running", 2, 0)
    sink.handler = _status(204)
    await _round(duty)
    assert (await _row(stage, run_id)).status == "success"


async def test_a_server_may_wish_to_be_left_alone(stage: Stage, sink: Sink, duty: PollDuty):
    sink.handler = _status(429, Retry_After="300")
    run_id = await _start(stage, sink.url)
    await _round(duty)
    assert ((await _row(stage, run_id)).due_at - stage.clock.now).total_seconds() == 300


async def test_nobody_there_is_no_answer_yet(stage: Stage, duty: PollDuty):
    run_id = await _start(stage, "http://127.0.0.1:1", {"interval_seconds": 5, "max_interval_seconds": 8})
    for expected in (5, 8, 8):
        assert await _round(duty) == 1
        row = await _row(stage, run_id)
        assert (row.status, (row.due_at - stage.clock.now).total_seconds()) == ("running", expected)
        assert row.waiting_for["last"]
        stage.clock.advance(expected)


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://10.0.0.1", "10.0.0.1 is not a public address"), ("ftp://127.0.0.1", "expected http:// or https://")],
)
async def test_an_address_that_cannot_be_asked_fails_it_at_once(stage: Stage, duty: PollDuty, url: str, reason: str):
    run_id = await _start(stage, url, retry_count=3)
    await _round(duty)
    row = await _row(stage, run_id)
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert reason in row.error
    assert await stage.run_status(run_id) == "failed"


async def test_a_body_that_is_not_what_it_says_fails_it(stage: Stage, sink: Sink, duty: PollDuty):
    sink.handler = lambda _request: web.Response(text="{", content_type="application/json")
    run_id = await _start(stage, sink.url, output="json")
    await _round(duty)
    assert (await _row(stage, run_id)).error_type == "bad_output"


async def test_a_poll_is_made_by_one_node(stage: Stage, sink: Sink, duty: PollDuty):
    sink.handler = _status(404)
    workflow_id = await stage.define(
        *(task(f"t{number}", wait={"http": {"url": sink.url}}) for number in range(40)), max_active_runs=0
    )
    for _ in range(3):
        await stage.submit(workflow_id)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(open_node(stage.url, stage.clock))
        other = await stack.enter_async_context(PollDuty(node.engine, LOOPBACK))
        for turn in range(1, 4):
            async with asyncio.timeout(60):
                # What one of them has locked is left to its next round.
                while len(sink.requests) < 120 * turn:
                    await asyncio.gather(_round(duty), _round(other))
            assert len(sink.requests) == 120 * turn
            stage.clock.advance(30)


async def test_a_node_that_dies_in_the_middle_leaves_it_due_again(stage: Stage, sink: Sink, duty: PollDuty):
    run_id = await _start(stage, sink.url)
    (taken,) = await stage.engine.polls.take(10)
    assert await _round(duty) == 0
    stage.clock.advance(TAKEN_SECONDS)
    (again,) = await stage.engine.polls.take(10)
    # It was only slow: what it says now does not shorten the time of who has it.
    await stage.engine.polls.tell([PollResult(taken, False, "late")])
    row = await _row(stage, run_id)
    assert (row.due_at, row.waiting_for["polls"]) == (again.due_at, 0)
    # But the condition is met, whoever saw it.
    await stage.engine.polls.tell([PollResult(taken, True, "status 200")])
    await stage.engine.polls.tell([PollResult(again, False, "status 404")])
    assert (await _row(stage, run_id)).status == "success"


async def test_an_answer_to_what_has_been_cancelled_or_started_anew_changes_nothing(stage: Stage, duty: PollDuty):
    run_id = await _start(stage, "http://127.0.0.1:1", timeout_seconds=20)
    (first,) = await stage.engine.polls.take(10)
    stage.clock.advance(20)
    await _round(duty)
    assert (await _row(stage, run_id)).error_type == "timeout"
    await stage.engine.retry_run(run_id)
    await stage.engine.polls.tell([PollResult(first, True, "status 200")])
    row = await _row(stage, run_id)
    assert (row.status, row.attempt) == ("running", 2)
    (second,) = await stage.engine.polls.take(10)
    await stage.engine.cancel_run(run_id)
    await stage.engine.polls.tell([PollResult(second, True, "status 200")])
    assert await stage.statuses(run_id) == {"ready": "cancelled", "b": "cancelled"}


async def test_a_stop_does_not_wait_for_answers(stage: Stage, sink: Sink):
    asked = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    sink.handler = hang
    run_id = await _start(stage, sink.url)
    async with asyncio.timeout(10), PollDuty(stage.engine, LOOPBACK) as duty:
        assert await duty.run_once() == 1
        await asked.wait()
    row = await _row(stage, run_id)
    assert (row.status, (row.due_at - stage.clock.now).total_seconds()) == ("running", TAKEN_SECONDS)


def test_intervals_double_up_to_the_longest():
    assert [choose_interval({}, count) for count in (1, 2, 50)] == [30, 30, 30]
    growing = {"interval_seconds": 2, "max_interval_seconds": 60}
    assert [choose_interval(growing, count) for count in (1, 2, 3, 5, 6, 1000)] == [2, 4, 8, 32, 60, 60]
