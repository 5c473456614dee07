"""explain: why it is not running, by the same counts that decide; prune: what is older than its retention."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from rota.domain.errors import NotFound
from rota.domain.ids import make_uuid7
from rota.domain.work import LogChunk
from rota.store.tables import attempts, state_history, task_logs, task_runs, workflow_runs
from rota.store.tables_service import workers
from tests.engine.stage import Stage, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def _explain(stage: Stage, run_id: str, name: str):
    return await stage.engine.explain_task_run(await stage.task_run_id(run_id, name))


async def test_it_waits_for_its_upstreams(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("c", "a", "b"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["a"]])
    answer = await _explain(stage, run_id, "c")
    assert (answer.status, answer.code) == ("pending", "waiting_for_upstream")
    assert [(holder.id, holder.name) for holder in answer.holders] == [(items["b"].task_run_id, "b")]
    assert "b (running)" in answer.sentence


async def test_there_is_no_worker_for_it(stage: Stage):
    run_id = await stage.start(task("a", queue="gpu", labels={"zone": "x"}))
    await stage.register(queues=("gpu",))
    answer = await _explain(stage, run_id, "a")
    assert answer.code == "no_worker"
    assert "gpu" in answer.sentence
    assert "zone" in answer.sentence
    await stage.register(queues=("gpu",), labels={"zone": "x"}, name="fits")
    answer = await _explain(stage, run_id, "a")
    assert (answer.code, [holder.name for holder in answer.holders]) == ("waiting_for_worker", ["fits"])


async def test_others_go_first(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    runs = []
    for _ in range(4):
        runs.append(await stage.submit(workflow_id))
        stage.clock.advance(1)
    await stage.register()
    assert (await _explain(stage, runs[3], "a")).details == {"ahead": 3}


async def test_its_pool_is_full(stage: Stage):
    await stage.add_pool("gpu", 2)
    workflow_id = await stage.define(task("a", pool="gpu"), max_active_runs=0)
    runs = [await stage.submit(workflow_id) for _ in range(3)]
    held = await stage.claim(await stage.register())
    (waiting,) = {*runs} - {item.run_id for item in held}
    answer = await _explain(stage, waiting, "a")
    assert answer.code == "pool_full"
    assert {holder.id for holder in answer.holders} == {item.task_run_id for item in held}


async def test_its_workflow_is_at_its_limit(stage: Stage):
    run_id = await stage.start(task("a"), task("b", priority=-1), max_active_tasks=1)
    (held,) = await stage.claim(await stage.register())
    answer = await _explain(stage, run_id, "b")
    assert (answer.code, [holder.id for holder in answer.holders]) == ("max_active_tasks", [held.task_run_id])


async def test_its_run_waits_for_its_turn(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=1)
    first, second = [await stage.submit(workflow_id) for _ in range(2)]
    for answer in (await _explain(stage, second, "a"), await stage.engine.explain_run(second)):
        assert (answer.code, [holder.id for holder in answer.holders]) == ("max_active_runs", [first])


async def test_retrying_running_cancelling_ended(stage: Stage):
    run_id = await stage.start(task("a", retry_count=1, retry_delay_seconds=60))
    worker = await stage.register()
    await stage.finish(worker, await stage.claim(worker), "failed", error_type="exit_code", error="boom")
    answer = await _explain(stage, run_id, "a")
    assert (answer.code, answer.details["error"]) == ("waiting_for_retry", "boom")
    assert (answer.next_check_at - stage.clock.now).total_seconds() == 60
    assert (await stage.engine.explain_run(run_id)).code == "waiting_for_retry"
    stage.clock.advance(60)
    await stage.engine.release_due()
    items = await stage.claim(worker)
    assert (await _explain(stage, run_id, "a")).code == "running"
    await stage.engine.cancel_run(run_id)
    assert (await _explain(stage, run_id, "a")).code == "cancelling"
    await stage.finish(worker, items, "cancelled")
    for answer in (await _explain(stage, run_id, "a"), await stage.engine.explain_run(run_id)):
        assert (answer.status, answer.code) == ("cancelled", "ended")


async def test_unknown_things_are_not_found(stage: Stage):
    for verb in (stage.engine.explain_run, stage.engine.explain_task_run, stage.engine.explain_schedule):
        with pytest.raises(NotFound):
            await verb(UNKNOWN)


async def _count(stage: Stage, table) -> int:
    ((count,),) = await stage.rows(select(func.count()).select_from(table))
    return int(count)


async def test_old_runs_go_with_all_that_belongs_to_them(stage: Stage):
    workflow_id = await stage.define(task("a", retry_count=1, retry_delay_seconds=0), max_active_runs=0)
    worker = await stage.register()
    old = [await stage.submit(workflow_id) for _ in range(3)]
    items = await stage.claim(worker)
    await stage.engine.report(worker, [LogChunk(item.task_run_id, 1, 0, b"x") for item in items])
    await stage.finish(worker, items, "failed")
    await stage.work(worker)
    stage.clock.advance(3600)
    young = await stage.submit(workflow_id)
    await stage.work(worker)
    stage.clock.advance(3600)
    running = await stage.submit(workflow_id)
    stage.clock.advance(1800)
    assert await stage.engine.prune(2 * 3600) == 3
    assert await stage.engine.prune(2 * 3600) == 0
    assert {row.id for row in await stage.runs_of(workflow_id)} == {young, running}
    assert (await _count(stage, task_runs), await _count(stage, attempts), await _count(stage, task_logs)) == (2, 0, 0)
    gone = await stage.rows(select(state_history.c.seq).where(state_history.c.root_id.in_(old)))
    assert gone == []
    assert await stage.engine.prune(0) == 1
    assert (await _count(stage, workflow_runs), await stage.run_status(running)) == (1, "running")


async def test_old_workers_go_and_active_ones_stay(stage: Stage):
    gone, alive = await stage.register(), await stage.register()
    await stage.engine.leave(gone)
    stage.clock.advance(100)
    await stage.engine.renew(alive, [])
    assert await stage.engine.prune(50) == 1
    assert [row.id for row in await stage.rows(select(workers.c.id))] == [alive.worker_id]
