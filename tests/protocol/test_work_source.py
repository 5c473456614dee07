"""What every source of work must do: the engine itself, and the HTTP client with a server behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from rota.domain.errors import InvalidInput, Unauthenticated
from rota.domain.work import (
    Assignment,
    AttemptKey,
    Finished,
    LogChunk,
    Registered,
    Registration,
    Report,
    WorkerIdentity,
    WorkSource,
)
from rota.worker.remote import RemoteSource
from tests.api.server import Server

NOWHERE = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture(params=["engine", "remote"])
async def source(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[WorkSource]:
    if request.param == "engine":
        yield server.engine
    else:
        async with RemoteSource([server.url]) as remote:
            yield remote


async def join(source: WorkSource, **fields: Any) -> Registered:
    values: dict[str, Any] = {
        "name": "one",
        "hostname": "here",
        "kinds": ("shell",),
        "concurrency": 4,
        "version": "1",
    } | fields
    return await source.register(Registration(**values))


async def take(source: WorkSource, worker: Registered, limit: int = 1) -> Sequence[Assignment]:
    return await source.claim(worker.identity, limit=limit, wait_seconds=0)


def key_of(assignment: Assignment) -> AttemptKey:
    return AttemptKey(assignment.task_run_id, assignment.attempt)


async def test_two_workers_with_one_name_are_two(source: WorkSource):
    first, second = await join(source), await join(source)
    assert first.worker_id != second.worker_id
    assert first.incarnation != second.incarnation
    assert first.lease_seconds > first.heartbeat_interval_seconds > 0


async def test_a_registration_that_makes_no_sense(source: WorkSource):
    wrong: list[dict[str, Any]] = [{"concurrency": 0}, {"queues": ()}, {"kinds": ()}, {"name": "x" * 201}]
    for fields in wrong:
        with pytest.raises(InvalidInput):
            await join(source, **fields)


async def test_an_assignment_has_all_that_execution_needs(source: WorkSource, server: Server):
    task = {"name": "a", "command": ["echo", "ä"], "env": {"A": "1"}, "timeout_seconds": 5, "retry_count": 1}
    await server.define({**task, "retry_delay_seconds": 0})
    run = await server.trigger(logical_date="2026-01-02T03:04:05Z")
    worker = await join(source)
    (taken,) = await take(source, worker)
    assert (taken.run_id, taken.workflow, taken.task, taken.kind) == (run["id"], "flow", "a", "shell")
    assert (taken.spec["command"], taken.spec["env"]) == (["echo", "ä"], {"A": "1"})
    assert (taken.timeout_seconds, taken.attempt, taken.try_number, taken.map_index) == (5, 1, 1, -1)
    assert taken.lease_seconds == worker.lease_seconds
    assert taken.logical_date.startswith("2026-01-02T03:04:05")
    failed = Finished(taken.task_run_id, 1, "failed", exit_code=3, error_type="exit_code", error="exit code 3")
    assert [result.is_accepted for result in (await source.report(worker.identity, [failed])).results] == [True]
    (again,) = await take(source, worker)
    assert (again.attempt, again.try_number) == (2, 2)
    assert again.idempotency_key == taken.idempotency_key
    assert await take(source, worker) == ()


async def test_several_at_once_and_no_more_than_wanted(source: WorkSource, server: Server):
    await server.define(*({"name": f"t{number}"} for number in range(5)))
    await server.trigger()
    worker = await join(source)
    assert [len(await take(source, worker, limit)) for limit in (1, 3, 100_000, 3)] == [1, 3, 1, 0]


async def test_waiting_ends_as_soon_as_there_is_work(source: WorkSource, server: Server):
    await server.define({"name": "a"})
    worker = await join(source)
    waiting = asyncio.create_task(source.claim(worker.identity, limit=2, wait_seconds=30))
    await server.trigger()
    async with asyncio.timeout(10):
        assert [assignment.task for assignment in await waiting] == ["a"]
    assert list(await source.claim(worker.identity, limit=1, wait_seconds=0.05)) == []


async def test_logs_and_results(source: WorkSource, server: Server):
    await server.define({"name": "a", "output": "json"}, {"name": "b", "depends_on": ["a"]})
    await server.trigger()
    worker = await join(source)
    (taken,) = await take(source, worker)
    key = (taken.task_run_id, taken.attempt)
    reports: list[Report] = [
        LogChunk(*key, 0, b"\xff\0bytes\n"),
        LogChunk(*key, 9000, b"after a gap", stream="stderr"),
        Finished(*key, "success", exit_code=0, output={"rows": [1, "ü"]}, usage={"cpu_seconds": 0.25}),
    ]
    reply = await source.report(worker.identity, reports, claim=1)
    assert [(result.is_accepted, result.code) for result in reply.results] == [(True, "ok")] * 3
    # What it released comes with the answer.
    assert [assignment.task for assignment in reply.assignments] == ["b"]
    found = await server.get(f"/task-runs/{taken.task_run_id}")
    assert (found["status"], found["output"], found["exit_code"]) == ("success", {"rows": [1, "ü"]}, 0)
    assert found["attempts"][0]["usage"] == {"cpu_seconds": 0.25}
    raw = await server.call("GET", f"/task-runs/{taken.task_run_id}/logs?raw=true")
    assert raw.body == b"\xff\0bytes\nafter a gap"


async def test_every_report_lands_or_is_refused_on_its_own(source: WorkSource, server: Server):
    await server.define({"name": "a"}, {"name": "b"})
    await server.trigger()
    mine, other = await join(source), await join(source, name="other")
    (own,) = await take(source, mine)
    (foreign,) = await take(source, other)
    reports: list[Report] = [
        Finished(foreign.task_run_id, foreign.attempt, "success"),
        LogChunk(foreign.task_run_id, foreign.attempt, 0, b"not mine"),
        Finished(NOWHERE, 1, "success"),
        Finished(own.task_run_id, own.attempt + 1, "success"),
        LogChunk(own.task_run_id, own.attempt, 0, b"mine"),
        Finished(own.task_run_id, own.attempt, "success"),
        Finished(own.task_run_id, own.attempt, "failed"),
    ]
    reply = await source.report(mine.identity, reports)
    assert [result.is_accepted for result in reply.results] == [False, False, False, False, True, True, False]
    assert all(result.code != "ok" and result.detail for result in reply.results if not result.is_accepted)
    assert (await server.get(f"/task-runs/{own.task_run_id}"))["status"] == "success"
    assert (await server.get(f"/task-runs/{foreign.task_run_id}"))["status"] == "running"


async def test_a_heartbeat_tells_what_to_cancel_and_what_is_lost(source: WorkSource, server: Server):
    await server.define({"name": "a"}, {"name": "b"})
    run = await server.trigger()
    worker = await join(source)
    first, second = await take(source, worker, 2)
    quiet = await source.renew(worker.identity, [key_of(first), key_of(second)])
    assert (quiet.cancel, quiet.lost, quiet.is_draining) == ((), (), False)
    await source.report(worker.identity, [Finished(first.task_run_id, first.attempt, "success")])
    await server.engine.cancel_run(run["id"])
    await server.engine.drain_worker(worker.worker_id)
    reply = await source.renew(worker.identity, [key_of(first), key_of(second)])
    assert (reply.cancel, reply.lost, reply.is_draining) == ((key_of(second),), (key_of(first),), True)
    assert (await source.renew(worker.identity, [])).is_draining is True


async def test_orders_are_heard_at_once(source: WorkSource, server: Server):
    await server.define({"name": "a"})
    run = await server.trigger()
    worker = await join(source)
    (taken,) = await take(source, worker)
    await source.renew(worker.identity, [key_of(taken)])
    hearing = asyncio.create_task(source.wait_for_orders(worker.identity, wait_seconds=30))
    while not hearing.done():
        # Until the line is open, orders may come too early for it; one of them is heard.
        await server.engine.cancel_run(run["id"])
        await asyncio.wait({hearing}, timeout=0.2)
    assert hearing.result() is True
    assert (await source.renew(worker.identity, [key_of(taken)])).cancel == (key_of(taken),)
    assert await source.wait_for_orders(worker.identity, wait_seconds=0.05) in (False, True)


async def test_who_is_not_known_must_register_anew(source: WorkSource, server: Server):
    worker = await join(source)
    stranger = WorkerIdentity(worker.worker_id, NOWHERE)
    with pytest.raises(Unauthenticated):
        await source.claim(stranger, limit=1, wait_seconds=0)
    with pytest.raises(Unauthenticated):
        await source.renew(stranger, [])
    await source.leave(worker.identity)
    with pytest.raises(Unauthenticated):
        await source.renew(worker.identity, [])
    with pytest.raises(Unauthenticated):
        await source.claim(worker.identity, limit=1, wait_seconds=0)


async def test_leaving_hands_everything_back(source: WorkSource, server: Server):
    await server.define({"name": "a"}, {"name": "b"})
    await server.trigger()
    worker, other = await join(source), await join(source, name="other")
    first, second = await take(source, worker, 2)
    await source.leave(worker.identity, [key_of(first)])
    taken = await take(source, other, 5)
    assert {assignment.task_run_id for assignment in taken} == {first.task_run_id, second.task_run_id}
    assert {(assignment.attempt, assignment.try_number) for assignment in taken} == {(2, 1)}
    late = await source.report(other.identity, [Finished(first.task_run_id, first.attempt, "success")])
    assert [result.is_accepted for result in late.results] == [False]


async def test_nothing_to_say_is_fine(source: WorkSource):
    worker = await join(source)
    reply = await source.report(worker.identity, [], claim=1)
    assert (reply.results, reply.assignments) == ((), ())


async def test_a_large_report_arrives_whole(source: WorkSource, server: Server):
    await server.define({"name": "a"})
    await server.trigger()
    worker = await join(source)
    (taken,) = await take(source, worker)
    size = 256 * 1024
    # More than one request holds, when it goes by HTTP.
    chunks = [LogChunk(taken.task_run_id, 1, size * number, bytes([number]) * size) for number in range(40)]
    end = Finished(taken.task_run_id, 1, "success")
    reply = await source.report(worker.identity, [*chunks, end], claim=1)
    assert [result.is_accepted for result in reply.results] == [True] * 41
    path = f"/task-runs/{taken.task_run_id}/logs?raw=true&limit=5000000"
    assert (await server.call("GET", path)).body == b"".join(chunk.data for chunk in chunks)[:5_000_000]
