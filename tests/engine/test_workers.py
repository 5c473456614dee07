"""register, renew, leave, doubt, drain: what workers say of themselves and are told."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from rota.domain.errors import InvalidInput, NotFound, Unauthenticated
from rota.domain.ids import make_uuid7
from rota.domain.work import AttemptKey, Registration, WorkerIdentity
from rota.store.tables_service import workers
from tests.engine.stage import LEASE_SECONDS, Stage, open_node, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def _row(stage: Stage, worker: WorkerIdentity):
    (row,) = await stage.rows(select(workers).where(workers.c.id == worker.worker_id))
    return row


async def test_two_workers_of_one_name_are_two(stage: Stage):
    first, second = await stage.register(name="twin"), await stage.register(name="twin")
    assert first.worker_id != second.worker_id
    assert first.incarnation != second.incarnation
    await stage.engine.leave(first)
    assert [(await _row(stage, worker)).status for worker in (first, second)] == ["inactive", "active"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": -1}, "concurrency"),
        ({"concurrency": 10**9}, "concurrency"),
        ({"queues": ()}, "queues"),
        ({"kinds": ()}, "kinds"),
        ({"name": "x" * 201}, "worker_id"),
        ({"hostname": "x" * 256}, "worker_id"),
    ],
)
async def test_a_bad_registration_is_refused(stage: Stage, fields: dict, field: str):
    with pytest.raises(InvalidInput) as caught:
        await stage.engine.register(Registration(**fields))
    assert [error.field for error in caught.value.errors] == [field]
    assert await stage.rows(select(workers)) == []


async def test_odd_characters_do_no_harm(stage: Stage):
    worker = await stage.register(
        name="a\0b\ud800", hostname="\0", version="\0" * 100, labels={"x\0": "\0y"}, queues=("q\0",), kinds=("shell",)
    )
    row = await _row(stage, worker)
    assert "\0" not in row.name
    assert row.labels == {"x\0": "\0y"}
    assert await stage.claim(worker) == []


async def test_renewing_renews_and_tells(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("c"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    keys = {name: AttemptKey(item.task_run_id, item.attempt) for name, item in items.items()}
    await stage.engine.cancel_task_run(keys["b"].task_run_id)
    stage.clock.advance(10)
    stranger = AttemptKey(UNKNOWN, 1)
    later = AttemptKey(keys["a"].task_run_id, 2)
    reply = await stage.engine.renew(worker, [*keys.values(), stranger, later])
    assert reply.cancel == (keys["b"],)
    assert set(reply.lost) == {stranger, later}
    assert not reply.is_draining
    rows = await stage.task_rows(run_id)
    assert {(row.lease_expires_at - stage.clock.now).total_seconds() for row in rows.values()} == {LEASE_SECONDS}


async def test_only_what_is_named_is_renewed(stage: Stage):
    """A worker that forgot an attempt (its process died, say) must not keep it."""
    run_id = await stage.start(task("a"), task("b"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    stage.clock.advance(20)
    await stage.engine.renew(worker, [AttemptKey(items["a"].task_run_id, 1)])
    stage.clock.advance(20)
    assert await stage.engine.reap_attempts() == 1
    assert await stage.statuses(run_id) == {"a": "running", "b": "queued"}


async def test_what_was_taken_away_is_lost(stage: Stage):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    stage.clock.advance(LEASE_SECONDS + 1)
    await stage.engine.reap_attempts()
    key = AttemptKey(item.task_run_id, 1)
    assert (await stage.engine.renew(worker, [key])).lost == (key,)


@pytest.mark.parametrize("key", [AttemptKey("no-id", 1), AttemptKey("", 1), AttemptKey(UNKNOWN, 2**40)])
async def test_nonsense_is_lost(stage: Stage, key: AttemptKey):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    assert (await stage.engine.renew(worker, [key, AttemptKey(item.task_run_id, 1)])).lost == (key,)


@pytest.mark.parametrize(("worker_id", "incarnation"), [(UNKNOWN, "x"), ("no-id", "no-id"), ("", "")])
async def test_an_unknown_worker_must_register(stage: Stage, worker_id: str, incarnation: str):
    await stage.start(task("a"))
    stranger = WorkerIdentity(worker_id, incarnation)
    for call in (stage.engine.renew(stranger, []), stage.claim(stranger)):
        with pytest.raises(Unauthenticated):
            await call
    await stage.engine.leave(stranger)
    await stage.engine.doubt(stranger)


async def test_another_node_knows_the_worker_too(database_url: str, stage: Stage):
    await stage.start(task("a", labels={"gpu": "yes"}))
    worker = await stage.register(labels={"gpu": "yes"})
    async with open_node(database_url, stage.clock) as other:
        assert [item.task for item in await other.engine.claim(worker, limit=1)] == ["a"]


async def test_leaving_hands_everything_back_for_free(stage: Stage):
    run_id = await stage.start(task("a", max_deliveries=1), task("b"))
    worker = await stage.register()
    for _ in range(5):
        worker = await stage.register()
        assert len(await stage.claim(worker)) == 2
        await stage.engine.leave(worker)
        await stage.engine.leave(worker)
    rows = await stage.task_rows(run_id)
    assert {(row.status, row.lost_count, row.attempt) for row in rows.values()} == {("queued", 0, 5)}
    with pytest.raises(Unauthenticated):
        await stage.claim(worker)
    assert (await _row(stage, worker)).finished_at == stage.clock.now


async def test_leaving_with_what_is_to_be_cancelled(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    await stage.claim(worker)
    await stage.engine.cancel_run(run_id)
    await stage.engine.leave(worker)
    assert await stage.run_status(run_id) == "cancelled"


async def test_doubt_ends_leases_soon_and_a_heartbeat_mends_it(stage: Stage):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    await stage.engine.doubt(worker)
    stage.clock.advance(2.9)
    assert await stage.engine.reap_attempts() == 0
    await stage.engine.renew(worker, [AttemptKey(item.task_run_id, 1)])
    stage.clock.advance(20)
    assert (await stage.engine.reap_attempts(), await stage.engine.reap_workers()) == (0, 0)
    await stage.engine.doubt(worker)
    stage.clock.advance(3.1)
    assert (await stage.engine.reap_attempts(), await stage.engine.reap_workers()) == (1, 1)


async def test_doubt_never_lengthens_a_lease(stage: Stage):
    await stage.start(task("a"))
    worker = await stage.register()
    await stage.claim(worker)
    stage.clock.advance(LEASE_SECONDS - 1)
    await stage.engine.doubt(worker)
    stage.clock.advance(1.1)
    assert await stage.engine.reap_attempts() == 1


async def test_draining(stage: Stage):
    worker = await stage.register()
    waiting = asyncio.create_task(stage.engine.wait_for_orders(worker, wait_seconds=60))
    await asyncio.wait([waiting], timeout=0.02)
    await stage.engine.drain_worker(worker.worker_id)
    async with asyncio.timeout(5):
        assert await waiting
    assert (await stage.engine.renew(worker, [])).is_draining
    assert (await _row(stage, worker)).status == "draining"
    await stage.engine.leave(worker)
    for worker_id in (worker.worker_id, UNKNOWN):
        with pytest.raises(NotFound):
            await stage.engine.drain_worker(worker_id)


async def test_a_worker_that_reports_a_cancel_nobody_asked_for(stage: Stage):
    """It stopped of itself: the work is done elsewhere, within the budget for lost work."""
    run_id = await stage.start(task("a", max_deliveries=2))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "cancelled")
    assert await stage.statuses(run_id) == {"a": "queued"}
    await stage.finish(worker, await stage.claim(worker), "cancelled")
    assert await stage.statuses(run_id) == {"a": "failed"}
