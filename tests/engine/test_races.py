"""Two verbs meet on one thing, on nodes of their own. Whoever comes first, there is one outcome and nobody waits for
ever. Random meetings of everything with everything are in test_storm.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from rota.domain.errors import Conflict, NotFound, RotaError, Unauthenticated
from rota.domain.work import AttemptKey, Finished
from rota.engine.engine import Engine
from rota.engine.submit import RunRequest
from rota.store.tables import workflow_runs
from tests.engine.stage import LEASE_SECONDS, Stage, open_node, task, workflow

TIMES = 15


@pytest.fixture
async def engines(stage: Stage) -> AsyncIterator[list[Engine]]:
    """Four nodes on one database. Nothing that they do together makes the database give up a transaction."""
    with structlog.testing.capture_logs() as logs:
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(open_node(stage.url, stage.clock)) for _ in range(4)]
            # Connections are opened now, so that the first meeting is as close as the others.
            await asyncio.gather(*(node.engine.find_next_due() for node in nodes))
            yield [node.engine for node in nodes]
    assert not [entry for entry in logs if entry["event"] == "database_retry"]


async def meet(*calls: Awaitable[Any]) -> list[Any]:
    """Starts all at one barrier; errors that are meant for callers are results."""
    barrier = asyncio.Barrier(len(calls))

    async def start(call: Awaitable[Any]) -> Any:
        await barrier.wait()
        return await call

    results = await asyncio.gather(*(start(call) for call in calls), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, RotaError):
            raise result
    return results


async def test_overlapping_joins(stage: Stage, engines: list[Engine]):
    """Each of twelve tasks is reported by another node; each join hears of all of its four."""
    sources = [f"a{number}" for number in range(12)]
    joins = [task(f"j{number}", *[sources[(number + step) % 12] for step in range(4)]) for number in range(12)]
    workflow_id = await stage.define(
        *map(task, sources), *joins, task("end", *[f"j{number}" for number in range(12)]), max_active_runs=0
    )
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        for expected in (12, 12, 1):
            items = await stage.claim(worker)
            assert len(items) == expected
            ends = [[Finished(item.task_run_id, 1, "success")] for item in items]
            if expected == 1:
                await stage.finish(worker, items)
                continue
            await meet(*(engines[place % 4].report(worker, end) for place, end in enumerate(ends)))
        assert await stage.run_status(run_id) == "success"


async def test_joins_of_two_runs_in_opposite_order(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), task("b"), task("c", "a", "b"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        runs = [await stage.submit(workflow_id) for _ in range(4)]
        items = {(item.run_id, item.task): item for item in await stage.claim(worker)}
        orders = (runs, runs[::-1])
        calls = [
            engine.report(worker, [Finished(items[run, name].task_run_id, 1, "success") for run in order])
            for engine, name, order in zip(engines, ("a", "b"), orders, strict=False)
        ]
        await meet(*calls)
        assert {(await stage.statuses(run))["c"] for run in runs} == {"queued"}
        await stage.work(worker)


async def test_reports_that_gather_in_opposite_order(stage: Stage, engines: list[Engine]):
    """Calls of one moment share a transaction: what it locks must not depend on the order in which they came."""
    workflow_id = await stage.define(task("a"), task("b"), task("c", "a", "b"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        runs = [await stage.submit(workflow_id) for _ in range(8)]
        items = {(item.run_id, item.task): item for item in await stage.claim(worker)}
        calls = []
        for engine, name, order in zip(engines, ("a", "b"), (runs, runs[::-1]), strict=False):
            calls += [engine.report(worker, [Finished(items[run, name].task_run_id, 1, "success")]) for run in order]
        await meet(*calls)
        assert {(await stage.statuses(run))["c"] for run in runs} == {"queued"}
        await stage.work(worker)


async def test_nothing_is_claimed_twice(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    workers = [await stage.register() for _ in range(4)]
    for _ in range(TIMES):
        await stage.engine.submit_many([RunRequest(workflow_id)] * 10)
        given = await meet(*(engine.claim(who, limit=4) for engine, who in zip(engines, workers, strict=True)))
        ids = [item.task_run_id for items in given for item in items]
        assert len(ids) == len(set(ids))
        for worker, items in zip(workers, given, strict=True):
            await stage.finish(worker, items)
        await stage.work(workers[0])


async def test_two_reports_of_one_attempt(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a", retry_count=9, retry_delay_seconds=0), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        await stage.submit(workflow_id)
        (item,) = await stage.claim(worker)
        replies = await meet(
            *(
                engine.report(worker, [Finished(item.task_run_id, item.attempt, status)])
                for engine, status in zip(engines, ("success", "failed", "success", "skipped"), strict=True)
            )
        )
        assert sorted(reply.results[0].code for reply in replies) == ["late", "late", "late", "ok"]
        await stage.work(worker)


@pytest.mark.parametrize("status", ["success", "failed", "cancelled"])
async def test_cancel_against_report(stage: Stage, engines: list[Engine], status: str):
    """After a cancel was accepted, no further try of anything begins."""
    workflow_id = await stage.define(task("a", retry_count=9, retry_delay_seconds=0), task("b", "a"), max_active_runs=0)
    worker = await stage.register()
    outcomes = set()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        (item,) = await stage.claim(worker)
        await meet(
            engines[0].cancel_run(run_id),
            engines[1].report(worker, [Finished(item.task_run_id, 1, status)]),
        )
        assert await stage.claim(worker) == []
        statuses = await stage.statuses(run_id)
        assert statuses["b"] == "cancelled"
        assert statuses["a"] in ("cancelled", status)
        assert await stage.run_status(run_id) == "cancelled"
        outcomes.add(statuses["a"])
    assert outcomes <= {"cancelled", status}


async def test_cancel_against_claim(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), task("b"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        _report, items = await meet(engines[0].cancel_run(run_id), engines[1].claim(worker, limit=2))
        reply = await stage.engine.renew(worker, [AttemptKey(item.task_run_id, 1) for item in items])
        assert len(reply.cancel) == len(items)
        await stage.finish(worker, items, "cancelled")
        assert await stage.run_status(run_id) == "cancelled"


async def test_cancel_of_waiting_runs_against_the_end_of_others(stage: Stage, engines: list[Engine]):
    """The one who ends a run looks for the next to start; the one who cancels that next one looks for room too."""
    workflow_id = await stage.define(task("a"), max_active_runs=2)
    worker = await stage.register()
    for _ in range(TIMES):
        runs = [await stage.submit(workflow_id) for _ in range(6)]
        items = await stage.claim(worker)
        assert len(items) == 2
        await meet(
            engines[0].report(worker, [Finished(items[0].task_run_id, 1, "success")]),
            engines[1].cancel_run(runs[2]),
            engines[2].report(worker, [Finished(items[1].task_run_id, 1, "success")]),
            engines[3].cancel_run(runs[3]),
            engines[1].cancel_run(runs[4]),
        )
        await stage.engine.reap_runs()
        await stage.work(worker)
        assert {await stage.run_status(run) for run in runs} <= {"success", "cancelled"}


async def test_retry_against_report(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), task("b"), task("c", "a", "b"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        items = {item.task: item for item in await stage.claim(worker)}
        await stage.finish(worker, [items["a"]], "failed")
        await meet(
            engines[0].retry_run(run_id),
            engines[1].report(worker, [Finished(items["b"].task_run_id, 1, "failed")]),
            engines[2].retry_run(run_id),
        )
        for _ in range(2):
            await stage.work(worker)
            if await stage.run_status(run_id) == "failed":
                await stage.engine.retry_run(run_id)
        await stage.work(worker)
        assert await stage.run_status(run_id) == "success"


async def test_retry_against_retry_and_cancel(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), task("b", "a"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        await stage.work(worker, {"a": "failed"})
        results = await meet(engines[0].retry_run(run_id), engines[1].retry_run(run_id), engines[2].cancel_run(run_id))
        assert sum(isinstance(result, Conflict) for result in results) >= 1
        await stage.work(worker)
        assert await stage.run_status(run_id) in ("success", "cancelled")


async def test_two_schedulers_on_one_tick(stage: Stage, engines: list[Engine]):
    ids = [
        await stage.define(task("a"), name=f"flow{number}", schedule_cron="* * * * *", max_active_runs=1)
        for number in range(5)
    ]
    for minute in range(1, TIMES + 1):
        stage.clock.advance(60)
        await meet(*(engine.fire() for engine in engines))
        await stage.engine.fire()
        for workflow_id in ids:
            dates = [row.logical_date for row in await stage.runs_of(workflow_id)]
            assert len(dates) == len(set(dates)) == minute


async def test_fire_against_edits(stage: Stage, engines: list[Engine]):
    specs = [workflow(task(name), schedule_cron="* * * * *", max_active_runs=3) for name in ("a", "b")]
    defined = await stage.engine.apply_workflow(specs[0])
    for turn in range(TIMES):
        stage.clock.advance(60)
        await meet(
            engines[0].fire(),
            engines[1].apply_workflow(specs[turn % 2]),
            engines[2].set_active(await stage.find(), is_active=True),
            engines[3].fire(),
        )
        await stage.engine.fire()
    assert len(await stage.runs_of(defined.id)) == TIMES


async def test_one_name_is_taken_once(stage: Stage, engines: list[Engine]):
    for number in range(TIMES):
        spec = workflow(task("a"), name=f"flow{number}", schedule_cron="* * * * *")
        results = await meet(*(engine.create_workflow(spec) for engine in engines))
        assert sum(isinstance(result, Conflict) for result in results) == 3
        spec = workflow(task("a"), name=f"applied{number}", schedule_cron="* * * * *")
        results = await meet(*(engine.apply_workflow(spec) for engine in engines))
        assert sorted(result.is_new for result in results) == [False, False, False, True]
        assert len({result.id for result in results}) == 1
        assert len(await stage.schedule_rows(results[0].id)) == 1


async def test_reap_against_report(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), task("b", "a"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        (item,) = await stage.claim(worker)
        stage.clock.advance(LEASE_SECONDS + 1)
        reaped, reply, again = await meet(
            engines[0].reap_attempts(),
            engines[1].report(worker, [Finished(item.task_run_id, 1, "success")]),
            engines[2].reap_attempts(),
        )
        assert reaped + again + reply.results[0].is_accepted == 1
        await stage.work(worker)
        assert await stage.run_status(run_id) == "success"


async def test_reap_against_renew(stage: Stage, engines: list[Engine]):
    """Either the lease is renewed in time, or the worker is told that the attempt is lost: never both or neither."""
    workflow_id = await stage.define(task("a", max_deliveries=100), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        (item,) = await stage.claim(worker)
        stage.clock.advance(LEASE_SECONDS + 1)
        key = AttemptKey(item.task_run_id, item.attempt)
        reaped, _reply = await meet(engines[0].reap_attempts(), engines[1].renew(worker, [key]))
        lost = (await stage.engine.renew(worker, [key])).lost
        assert (reaped, lost) in ((1, (key,)), (0, ()))
        await stage.finish(worker, [item])
        await stage.work(worker)
        assert await stage.run_status(run_id) == "success"


async def test_renew_against_report(stage: Stage, engines: list[Engine]):
    """A renewal that meets the end of the attempt neither blocks it nor tells the worker to kill it."""
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    worker = await stage.register()
    for _ in range(TIMES):
        run_id = await stage.submit(workflow_id)
        (item,) = await stage.claim(worker)
        key = AttemptKey(item.task_run_id, 1)
        reply, report = await meet(
            engines[0].renew(worker, [key]), engines[1].report(worker, [Finished(item.task_run_id, 1, "success")])
        )
        assert report.results[0].is_accepted
        assert reply.cancel == ()
        assert await stage.run_status(run_id) == "success"


async def test_leave_against_claim_and_report(stage: Stage, engines: list[Engine]):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    helper = await stage.register()
    for _ in range(TIMES):
        worker = await stage.register()
        await stage.engine.submit_many([RunRequest(workflow_id)] * 3)
        items = await stage.claim(worker, 2)
        _left, report, claimed = await meet(
            engines[0].leave(worker),
            engines[1].report(worker, [Finished(items[0].task_run_id, items[0].attempt, "success")]),
            engines[2].claim(worker, limit=1),
        )
        assert isinstance(claimed, Unauthenticated | tuple)
        assert report.results[0].code in ("ok", "late")
        # What a node gave to the worker while it left ends with its lease.
        stage.clock.advance(LEASE_SECONDS + 1)
        await stage.engine.reap_attempts()
        await stage.engine.renew(helper, [])
        await stage.work(helper)
        open_runs = await stage.rows(select(workflow_runs.c.id).where(workflow_runs.c.finished_at.is_(None)))
        assert open_runs == []


async def test_deletion_against_submission(stage: Stage, engines: list[Engine]):
    for number in range(TIMES):
        workflow_id = await stage.define(task("a"), name=f"flow{number}", max_active_runs=number % 2)
        deleted, *submitted = await meet(
            engines[0].delete_workflow(workflow_id),
            engines[1].submit(RunRequest(workflow_id)),
            engines[2].submit(RunRequest(workflow_id)),
        )
        kept = [run.id for run in submitted if not isinstance(run, NotFound)]
        assert isinstance(deleted, Conflict) == bool(kept)
        assert sorted(row.id for row in await stage.runs_of(workflow_id)) == sorted(kept)
