"""mark: what somebody declares of a task run holds for all that waits for it, and what a worker says later does not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import get_args

import pytest

from rota.domain.errors import Conflict, NotFound
from rota.domain.ids import make_uuid7
from rota.domain.states import Holder
from rota.domain.work import AttemptKey, Finished
from rota.engine import gate
from rota.engine.core import Core, GateReport, ReadyTask
from rota.engine.held import HeldEnd, finish_held
from rota.engine.mark import Mark, MarkStatus
from rota.store.database import Transaction
from rota.store.gates import Hold
from tests.engine.stage import Stage, open_node, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")
BELOW = {"success": "queued", "failed": "upstream_failed", "skipped": "skipped"}
STATUSES = get_args(MarkStatus)


async def _mark(stage: Stage, run_id: str, name: str, status: MarkStatus, **fields: str) -> None:
    await stage.engine.mark_task_run(await stage.task_run_id(run_id, name), Mark(status, **fields))


@pytest.mark.parametrize("status", STATUSES)
async def test_what_waits_for_its_upstreams(stage: Stage, status: MarkStatus):
    run_id = await stage.start(task("a"), task("b", "a"), task("c", "b"))
    await _mark(stage, run_id, "b", status, reason="done by hand", by="ann")
    assert await stage.statuses(run_id) == {"a": "queued", "b": status, "c": BELOW[status]}
    (move,) = await stage.history(await stage.task_run_id(run_id, "b"))
    assert move == ("pending", status, {"is_marked": True, "reason": "done by hand", "by": "ann"})
    assert "b" not in await stage.work(await stage.register())
    assert await stage.run_status(run_id) == ("failed" if status == "failed" else "success")


@pytest.mark.parametrize("status", STATUSES)
async def test_what_is_queued_is_not_claimed_any_more(stage: Stage, status: MarkStatus):
    run_id = await stage.start(task("a"), task("b", "a"))
    await _mark(stage, run_id, "a", status)
    assert await stage.statuses(run_id) == {"a": status, "b": BELOW[status]}
    assert await stage.work(await stage.register()) == (["b"] if status == "success" else [])
    assert await stage.run_status(run_id) == ("failed" if status == "failed" else "success")


@pytest.mark.parametrize("status", STATUSES)
async def test_what_waits_for_its_next_try_gets_none(stage: Stage, status: MarkStatus):
    run_id = await stage.start(task("a", retry_count=3, retry_delay_seconds=60), task("b", "a"))
    worker = await stage.register()
    await stage.work(worker, {"a": "failed"})
    await _mark(stage, run_id, "a", status)
    stage.clock.advance(100)
    assert await stage.engine.release_due() == 0
    assert await stage.statuses(run_id) == {"a": status, "b": BELOW[status]}
    await stage.work(worker)


@pytest.mark.parametrize("status", STATUSES)
async def test_a_worker_is_told_to_stop_and_its_result_is_late(stage: Stage, status: MarkStatus):
    run_id = await stage.start(task("a", retry_count=5), task("b", "a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    orders = asyncio.create_task(stage.engine.wait_for_orders(worker, wait_seconds=10))
    await asyncio.sleep(0)
    await _mark(stage, run_id, "a", status, reason="hangs")
    assert await orders
    reply = await stage.engine.renew(worker, [AttemptKey(item.task_run_id, item.attempt)])
    assert reply.lost == (AttemptKey(item.task_run_id, item.attempt),)
    for outcome in ("failed", "success"):
        (result,) = await stage.finish(worker, [item], outcome)
        assert (result.is_accepted, result.code) == (False, "late")
    assert await stage.statuses(run_id) == {"a": status, "b": BELOW[status]}
    row = (await stage.task_rows(run_id))["a"]
    assert (row.exit_code, row.lease_expires_at) == (None, None)
    assert row.error == (None if status == "success" else f"marked {status}: hangs")
    await stage.work(worker)


async def _hold(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    return await gate.hold(transaction, [(item, Hold(item.row.id, Holder.APPROVAL, due_seconds=60)) for item in ready])


async def test_what_the_engine_holds_is_let_go(stage: Stage):
    stage.engine._core.starters = {"wait": _hold}
    run_id = await stage.start(task("a", wait={"seconds": 60}), task("b", "a"))
    await _mark(stage, run_id, "a", "success")
    stage.clock.advance(100)
    assert await stage.engine.serve_due() == 0
    end = HeldEnd(await stage.task_run_id(run_id, "a"), 1, Holder.APPROVAL, "failed", "timeout")
    assert await stage.database.transact(lambda tx: finish_held(stage.engine._core, tx, [end])) == []
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.holder, row.due_at) == ("success", None, None)
    assert await stage.work(await stage.register()) == ["b"]


async def test_a_failed_one_becomes_success_and_what_had_given_up_goes_on(stage: Stage):
    run_id = await stage.start(
        task("a"),
        task("b", "a"),
        task("c", "b"),
        task("d", "a", "x"),
        task("x"),
        task("end", "c", trigger_rule="all_done"),
    )
    worker = await stage.register()
    await stage.work(worker, {"a": "failed", "x": "failed"})
    assert await stage.run_status(run_id) == "failed"
    await _mark(stage, run_id, "a", "success", by="ann")
    found = await stage.statuses(run_id)
    assert found == {
        **{"a": "success", "b": "queued", "c": "pending", "d": "upstream_failed", "x": "failed"},
        "end": "success",
    }
    run = await stage.run_row(run_id)
    assert (run.status, run.remaining, run.failed_count, run.finished_at) == ("running", 2, 1, None)
    assert await stage.work(worker) == ["b", "c"]
    assert await stage.run_status(run_id) == "failed"
    await _mark(stage, run_id, "x", "skipped")
    assert (await stage.statuses(run_id))["d"] == "skipped"
    assert await stage.run_status(run_id) == "success"
    assert [move[:2] for move in await stage.history(run_id)][-2:] == [("failed", "running"), ("running", "success")]


async def test_one_that_had_given_up_is_declared_done(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("c", "b"))
    worker = await stage.register()
    await stage.work(worker, {"a": "failed"})
    await _mark(stage, run_id, "b", "success")
    assert await stage.work(worker) == ["c"]
    assert await stage.statuses(run_id) == {"a": "failed", "b": "success", "c": "success"}
    assert await stage.run_status(run_id) == "failed"


async def test_while_the_run_goes_on(stage: Stage):
    """A failure among others: the join below has given up, and the rest still runs."""
    run_id = await stage.start(task("a"), task("b"), task("join", "a", "b"))
    worker = await stage.register()
    a, b = sorted(await stage.claim(worker), key=lambda item: item.task)
    await stage.finish(worker, [a], "failed")
    assert (await stage.statuses(run_id))["join"] == "upstream_failed"
    await _mark(stage, run_id, "a", "success")
    assert await stage.statuses(run_id) == {"a": "success", "b": "running", "join": "pending"}
    await stage.finish(worker, [b])
    assert await stage.work(worker) == ["join"]
    assert await stage.run_status(run_id) == "success"


async def test_marked_failed_it_can_be_retried_and_every_attempt_is_kept_once(stage: Stage):
    run_id = await stage.start(task("a", retry_count=1, retry_delay_seconds=60), task("b", "a"))
    worker = await stage.register()
    await stage.work(worker, {"a": "failed"})
    await _mark(stage, run_id, "a", "failed", reason="no use")
    row = (await stage.task_rows(run_id))["a"]
    assert (row.error_type, row.error) == ("marked", "marked failed: no use")
    await stage.engine.retry_run(run_id)
    await stage.claim(worker)
    await _mark(stage, run_id, "a", "failed")
    await stage.engine.retry_run(run_id)
    await stage.claim(worker)
    await _mark(stage, run_id, "a", "success")
    assert await stage.work(worker) == ["b"]
    assert await stage.run_status(run_id) == "success"


async def test_final_is_final_and_the_same_again_is_fine(stage: Stage):
    run_id = await stage.start(task("a"), task("b"))
    worker = await stage.register()
    await stage.work(worker, {"b": "skipped"})
    moves: list[tuple[str, MarkStatus]] = [("a", "failed"), ("a", "skipped"), ("b", "success")]
    for name, status in moves:
        with pytest.raises(Conflict, match="rerun"):
            await _mark(stage, run_id, name, status)
    before = await stage.history(run_id)
    await _mark(stage, run_id, "a", "success")
    assert await stage.history(run_id) == before
    with pytest.raises(NotFound):
        await stage.engine.mark_task_run(UNKNOWN, Mark("success"))


async def test_runs_that_are_over_or_have_not_started(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", "a", trigger_rule="one_failed"), max_active_runs=1)
    handled, waiting = [await stage.submit(workflow_id) for _ in range(2)]
    with pytest.raises(Conflict, match="turn"):
        await _mark(stage, waiting, "a", "success")
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    await stage.finish(worker, [item], "failed")
    await stage.work(worker, {"a": "failed"})
    assert await stage.run_status(handled) == "success"
    with pytest.raises(Conflict, match="final"):
        await _mark(stage, handled, "a", "success")


async def test_in_a_run_that_is_being_cancelled(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("f"), task("clean", "a", "b", "f", teardown=True))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["f"]], "failed")
    await stage.engine.cancel_run(run_id)
    with pytest.raises(Conflict, match="being cancelled"):
        await _mark(stage, run_id, "f", "success")
    await _mark(stage, run_id, "a", "success")
    await stage.finish(worker, [items["b"]], "cancelled")
    assert await stage.work(worker) == ["clean"]
    assert await stage.run_status(run_id) == "cancelled"


async def test_a_mark_and_a_result_meet(stage: Stage):
    """Whoever comes first, there is one outcome."""
    workflow_id = await stage.define(task("a"), task("b", "a"), max_active_runs=0)
    worker = await stage.register()
    async with open_node(stage.url, stage.clock) as other:
        for turn in range(20):
            run_id = await stage.submit(workflow_id)
            (item,) = await stage.claim(worker, 1)
            end = Finished(item.task_run_id, item.attempt, "failed")
            calls = [stage.engine.mark_task_run(item.task_run_id, Mark("success")), other.engine.report(worker, [end])]
            await asyncio.gather(*(calls if turn % 2 else calls[::-1]))
            # A failure that was faster was marked afterwards.
            assert (await stage.statuses(run_id))["a"] == "success"
            assert await stage.work(worker) == ["b"]
            assert await stage.run_status(run_id) == "success"
