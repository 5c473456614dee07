"""Every statement of every verb finds its rows by index, whatever the statistics say: after ANALYZE on empty tables,
on tables that have grown since, and on large tables that are well known."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from sqlalchemy import select, text, update

from rota.domain.errors import Conflict
from rota.domain.rates import Rate
from rota.domain.states import Holder
from rota.domain.work import AttemptKey, LogChunk, WorkerIdentity
from rota.engine import expand
from rota.engine.annotate import Annotation
from rota.engine.backfill import BackfillRequest
from rota.engine.held import HeldEnd, finish_held
from rota.engine.mark import Mark
from rota.engine.polls import PollResult
from rota.engine.rerun import Rerun
from rota.engine.submit import RunRequest
from rota.store import gates
from rota.store.queues import QueueSettings
from rota.store.reads import graphs
from rota.store.reads.approvals import list_approvals
from rota.store.reads.graphs import GridFilter
from rota.store.reads.pages import PageRequest, TimeRange
from rota.store.reads.runs import RunFilter, list_runs, list_task_runs
from rota.store.tables import task_runs, workflow_runs
from tests.engine.stage import LEASE_SECONDS, Clock, Stage, open_stage, task
from tests.store.plans import find_scans, record_statements

MANY = 50_000


async def _do_everything(stage: Stage, turn: int) -> None:
    """Each verb at least once, on a few rows."""
    engine = stage.engine
    workflow_id = await stage.define(
        task("a", retry_count=1, retry_delay_seconds=5),
        task("b", "a", pool="small"),
        task("c", "a", "b", trigger_rule="all_done"),
        name="busy",
        max_active_runs=2,
        max_active_tasks=5,
        schedule_cron="* * * * *",
        run_timeout_seconds=500 + turn,
    )
    runs = [await stage.submit(workflow_id) for _ in range(4)]
    worker = await stage.register()
    items = await stage.claim(worker)
    await engine.renew(worker, [AttemptKey(item.task_run_id, item.attempt) for item in items])
    await engine.report(worker, [LogChunk(item.task_run_id, item.attempt, 0, b"x") for item in items])
    await stage.finish(worker, items[:1], "failed", error_type="exit_code")
    await stage.finish(worker, items[1:], "success")
    await stage.finish(worker, items[1:], "success")
    stage.clock.advance(6)
    await engine.release_due()
    await stage.work(worker, {"a": "failed"})
    for verb in (engine.explain_run, engine.retry_run, engine.cancel_run):
        await verb(items[0].run_id)
    stage.clock.advance(6)
    await engine.release_due()
    await _intervene(stage, workflow_id, is_analyzed=turn != 2)
    await _lose_and_leave(stage, worker)
    await _pass_gates(stage)
    await _branch(stage)
    await _map(stage)
    await _overlap(stage)
    await _queue_for_keys(stage)
    await _call_others(stage, turn)
    await _queue_at_a_rate(stage)
    await engine.find_next_due()
    stage.clock.advance(600)
    await engine.reap_runs()
    for run_id in runs:
        with suppress(Conflict):
            await engine.cancel_run(run_id)
    stage.clock.advance(1000)
    await engine.prune(500)


async def _overlap(stage: Stage) -> None:
    """Each policy on open runs, and the review of failures."""
    for overlap in ("skip", "buffer_all", "cancel_other", "terminate_other"):
        rules = [{"schedule_cron": "* * * * *", "overlap": overlap, "pause_after_failures": 1}]
        await stage.define(
            task("a", queue="timed"), name=overlap, schedules=rules, pause_after_failures=2, max_active_runs=0
        )
    (row,) = await stage.schedule_rows((await stage.find("skip")).id)
    await stage.engine.set_schedule_active(row.id, is_active=False)
    await stage.engine.set_schedule_active(row.id, is_active=True)
    await stage.engine.rearm()
    for _ in range(3):
        assert (await stage.engine.prepare(60)).count
        stage.clock.advance(60)
        await stage.engine.fire()
    past = BackfillRequest(stage.clock.now - timedelta(seconds=300), stage.clock.now, max_active=2)
    backfill_id = await stage.engine.create_backfill(await stage.find("skip"), past)
    assert await stage.engine.step_backfills()
    await stage.engine.change_backfill("default", backfill_id, "cancelled")
    worker = await stage.register(queues=("timed",))
    await stage.finish(worker, await stage.claim(worker), "failed", error_type="exit_code")
    assert await stage.engine.review()


async def _intervene(stage: Stage, workflow_id: str, *, is_analyzed: bool) -> None:
    """What people do to runs, and how they look at them."""
    engine = stage.engine
    spec = [task("a", queue="people"), task("b", "a", queue="people"), task("c", "b", queue="people")]
    run_id = await stage.submit(
        await stage.define(*spec, name="handled", params={"day": "{{ ds }}"}), labels={"team": "data", "env": "dev"}
    )
    await engine.annotate_run(run_id, Annotation("note", {"team": "ops"}))
    worker = await stage.register(queues=("people",))
    (item,) = [item for item in await stage.claim(worker) if item.run_id == run_id]
    await stage.finish(worker, [item], "failed")
    await engine.mark_task_run(item.task_run_id, Mark("success"))
    await engine.mark_task_run(await stage.task_run_id(run_id, "b"), Mark("skipped"))
    await engine.rerun_run(run_id, Rerun("tasks", ("a",)))
    await engine.retry_or_rerun(run_id, Rerun("whole", version=1))
    if is_analyzed:
        await _look(stage, workflow_id, run_id)
    await stage.work(worker)


async def _look(stage: Stage, workflow_id: str, run_id: str) -> None:
    """Lists and graphs. They are put together for each request, and planned by what is known of the tables."""
    made = TimeRange(stage.clock.now, stage.clock.now)
    labels = [("team", "ops"), ("env", "dev")]
    for wanted in (
        RunFilter("default", ["failed"], made=made),
        RunFilter("default", ["running"], workflow_id),
        RunFilter("default", labels=labels, tag="x", text="y"),
        RunFilter("default", labels=labels[:1], workflow_id=workflow_id),
    ):
        for page in (PageRequest(), PageRequest(after=run_id)):
            await stage.database.read(partial(list_runs, wanted=wanted, page=page))
    # Counting everything reads everything, up to a limit; a page of it does not.
    await stage.database.read(partial(list_runs, wanted=RunFilter("default"), page=PageRequest(after=run_id)))
    for wanted in (RunFilter("default", ["failed"]), RunFilter("default", run_id=run_id)):
        await stage.database.read(partial(list_task_runs, wanted=wanted, page=PageRequest()))
    grid = GridFilter("default", workflow_id, made)
    await stage.database.read(partial(graphs.read_grid, wanted=grid, page=PageRequest()))
    await stage.database.read(partial(graphs.read_nodes, run_id=run_id))
    await stage.database.read(partial(graphs.read_edges, run_id=run_id))
    await stage.database.read(partial(graphs.count_items, run_id=run_id))
    version_id = (await stage.run_row(run_id)).version_id
    await stage.database.read(partial(graphs.read_task_names, version_id=version_id))


async def _lose_and_leave(stage: Stage, worker: WorkerIdentity) -> None:
    engine = stage.engine
    assert await stage.claim(worker, 1)
    await engine.doubt(worker)
    stage.clock.advance(LEASE_SECONDS + 1)
    assert await engine.reap_attempts() == 1
    await engine.reap_workers()
    other = await stage.register()
    (item,) = await stage.claim(other, 1)
    await engine.drain_worker(other.worker_id)
    await engine.leave(other)
    await engine.explain_task_run(item.task_run_id)
    await engine.cancel_task_run(item.task_run_id)


async def _pass_gates(stage: Stage) -> None:
    """Conditions, and what the engine holds itself."""
    core = stage.engine._core
    worker = await stage.register()
    run_id = await stage.start(
        task("a"),
        task("b", "a", when="tasks.a.status == 'failed'"),
        task("c", "a", when="true", retry_count=1, retry_delay_seconds=5),
        name="gated",
    )
    await stage.work(worker, {"c": "failed"})
    stage.clock.advance(6)
    assert await stage.engine.release_due() >= 1
    c = await stage.task_run_id(run_id, "c")
    await stage.database.transact(lambda tx: gates.hold(tx, [gates.Hold(c, Holder.WAIT, due_seconds=1)]))
    stage.clock.advance(2)
    (due,) = await stage.database.transact(lambda tx: gates.find_due(tx, 10))
    end = HeldEnd(due.id, due.attempt, Holder.WAIT, "success")
    assert len(await stage.database.transact(lambda tx: finish_held(core, tx, [end]))) == 1
    await _wait(stage)


async def _wait(stage: Stage) -> None:
    """Waits and approvals."""
    run_id = await stage.start(
        task("pause", wait={"seconds": 5}),
        task("gate", approval={"message": "?", "deadline_seconds": 60}),
        task("late", approval={"deadline_seconds": 5}),
        task("run", wait={"run": {"workflow": "busy", "task": "a"}}),
        task("poll", wait={"http": {"url": "http://127.0.0.1:1/{{ ds }}"}}),
        name="waiting",
    )
    stage.clock.advance(6)
    assert await stage.engine.serve_due() == 3
    gate = await stage.task_run_id(run_id, "gate")
    found = await stage.database.read(lambda tx: list_approvals(tx, "default", PageRequest(after=gate)))
    assert found.total is None
    assert (await stage.engine.explain_task_run(gate)).code == "waiting_for_approval"
    (poll,) = await stage.engine.polls.take(10)
    await stage.engine.polls.tell([PollResult(poll, False, "status 404")])
    await stage.engine.decide_approval(gate, is_approved=True, by="ann")
    await stage.engine.cancel_run(run_id)


async def _branch(stage: Stage) -> None:
    """A choice, and what it leaves out, now and after a retry."""
    worker = await stage.register()
    run_id = await stage.start(
        task("choose", branch=True), task("other"), task("a", "choose"), task("b", "choose", "other"), name="branching"
    )
    for item in await stage.claim(worker):
        await stage.finish(worker, [item], "failed" if item.task == "other" else "success", output="a")
    await stage.engine.retry_run(run_id)
    await stage.work(worker)


async def _queue_for_keys(stage: Stage) -> None:
    """Keys that are given out, passed on and left behind, and waiting that takes too long."""
    workflow_id = await stage.define(
        task("a", concurrency_key="{{ ds }}", queue_timeout_seconds=5), name="keyed", max_active_runs=0
    )
    runs = [await stage.submit(workflow_id) for _ in range(4)]
    assert await stage.engine.settle_keys() == 4
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "success")
    await stage.engine.explain_task_run(await stage.task_run_id(runs[3], "a"))
    await stage.engine.cancel_run(runs[1])
    stage.clock.advance(5)
    assert await stage.engine.expire_waiting() == 2


async def _call_others(stage: Stage, turn: int) -> None:
    """Sub-workflows, workflows that start at the end of others, and the ends and cancels between them."""
    worker = await stage.register()
    await stage.define(task("work", output="json", priority=turn), name="called", max_active_runs=turn)
    parent = task("call", workflow="called"), task("forget", workflow="called", wait_for_result=False)
    caller_id = await stage.define(*parent, task("b", "call", priority=turn), name="caller")
    listens = [{"workflow": "caller", "status": "done"}, {"workflow": "called", "status": "failed"}]
    listener_id = await stage.define(task("c", priority=turn), name="listener", on=listens)
    run_id = await stage.submit(caller_id)
    await stage.work(worker)
    await stage.submit(caller_id)
    await stage.work(worker, {"work": "failed"})
    cancelled = await stage.submit(caller_id)
    await stage.follow()
    await stage.engine.explain_run(cancelled)
    await stage.engine.cancel_run(cancelled)
    await stage.work(worker)
    assert await stage.run_status(run_id) == "success"
    assert len(await stage.runs_of(listener_id)) == 5


async def _map(stage: Stage) -> None:
    """Items of every way of life: created in parts, waiting for others, retried, cancelled."""
    worker = await stage.register()
    each = task("each", "list", map_over="tasks.list.output", map_concurrency=2, output="json")
    run_id = await stage.start(task("list", output="json"), each, task("after", "each"), name="mapped")
    await stage.finish(worker, await stage.claim(worker), output=[1, 2, 3, 4, 5])
    while await stage.engine.expand_maps():
        pass
    await stage.engine.explain_run(run_id)
    items = await stage.claim(worker)
    await stage.finish(worker, items[:1], "failed", error_type="exit_code")
    await stage.finish(worker, items[1:], output=1)
    await stage.engine.retry_task_run(items[0].task_run_id)
    at_the_end = select(task_runs.c.id).where(task_runs.c.run_id == run_id, task_runs.c.map_index == 4)
    (last,) = await stage.rows(at_the_end)
    await stage.engine.explain_task_run(last.id)
    await stage.engine.cancel_task_run(last.id)
    await stage.work(worker)
    await stage.engine.retry_run(run_id)
    other = await stage.start(task("each", map_over=[1, 2, 3, 4, 5], map_concurrency=1), name="cut")
    await stage.engine.cancel_run(other)
    while await stage.engine.expand_maps():
        pass
    whole = await stage.start(task("each", map_over=[1], output="json"), name="whole")
    await stage.work(worker)
    assert await stage.run_status(whole) == "success"


async def _queue_at_a_rate(stage: Stage) -> None:
    """Queues with limits, and what they say about themselves."""
    wanted = QueueSettings(Rate(1, 60.0, 1))
    await stage.engine.put_queue("default", "slow", wanted)
    await stage.engine.put_queue("default", "slow", wanted)
    workflow_id = await stage.define(task("a", queue="slow"), name="slow", max_active_runs=0)
    runs = [await stage.submit(workflow_id) for _ in range(2)]
    worker = await stage.register(queues=("slow",))
    items = await stage.claim(worker)
    assert [item.run_id for item in items] == runs[:1]
    await stage.engine.explain_run(runs[1])
    await stage.finish(worker, items)
    await stage.engine.cancel_run(runs[1])
    await stage.engine.delete_queue("default", "slow")


async def _load(stage: Stage) -> None:
    """Much finished work, some that waits, and many definitions."""
    names = [f"t{number}" for number in range(5_000)]
    chain = [task(names[0]), *(task(name, before) for before, name in pairwise(names))]
    await stage.define(*chain, name="large", schedules=[{"schedule_cron": "0 0 1 1 *"}] * 100)
    workflow_id = await stage.define(task("a", queue="other"), name="bulk", max_active_runs=0)
    for _ in range(MANY // 10_000):
        await stage.engine.submit_many([RunRequest(workflow_id)] * 10_000)
    ended = {"status": "success", "finished_at": stage.clock.now + timedelta(days=1000)}
    await stage.execute(update(task_runs).where(task_runs.c.status == "queued").values(**ended))
    await stage.execute(update(workflow_runs).where(workflow_runs.c.status == "running").values(remaining=0, **ended))
    await stage.engine.submit_many([RunRequest(workflow_id)] * 500)


async def _find_scans(stage: Stage, turn: int) -> list[str]:
    with record_statements() as statements:
        await _do_everything(stage, turn)
    verbs = {key: value for key, value in statements.items() if "alembic" not in key}
    assert len(verbs) > 40
    return await find_scans(stage.url, verbs)


async def test_no_statement_reads_a_large_table_as_a_whole(database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 3)
    clock = Clock()
    async with open_stage(database_url, clock) as stage:
        await stage.add_pool("small", 2)
        await stage.execute(text("ANALYZE"))
        empty = await _find_scans(stage, 1)
        await _load(stage)
        grown = await _find_scans(stage, 2)
        await stage.execute(text("ANALYZE"))
        full = await _find_scans(stage, 3)
    faults = {"empty": empty, "grown": grown, "full": full}
    assert not any(faults.values()), "\n\n".join(f"{name}: {line}" for name, lines in faults.items() for line in lines)
