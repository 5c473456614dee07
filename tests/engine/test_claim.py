"""claim: what may be given to whom, in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.domain.errors import Unauthenticated
from rota.domain.work import Registration, WorkerIdentity
from rota.engine.submit import RunRequest
from tests.engine.stage import START, Stage, open_node, task


async def test_an_assignment_has_all_that_execution_needs(stage: Stage):
    run_id = await stage.start(task("a", command=["echo", "hi"], timeout_seconds=7, env={"X": "1"}), name="greet")
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    assert (item.run_id, item.workflow, item.task, item.kind) == (run_id, "greet", "a", "shell")
    assert item.spec == {"name": "a", "command": ["echo", "hi"], "timeout_seconds": 7, "env": {"X": "1"}}
    assert (item.attempt, item.try_number, item.timeout_seconds, item.lease_seconds) == (1, 1, 7.0, 30.0)
    assert item.idempotency_key == f"{run_id}.a"
    assert item.logical_date == START.isoformat()
    row = (await stage.task_rows(run_id))["a"]
    assert (row.status, row.worker_id, row.incarnation) == ("running", worker.worker_id, worker.incarnation)
    assert (row.lease_expires_at - START).total_seconds() == 30
    moves = await stage.history(item.task_run_id)
    assert [move[:2] for move in moves] == [("pending", "queued"), ("queued", "running")]
    assert moves[1][2] == {"attempt": 1, "worker_id": worker.worker_id}


async def test_nothing_is_given_twice(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id)] * 50)
    workers = [await stage.register() for _ in range(4)]
    given = await asyncio.gather(*(stage.claim(worker, 20) for worker in workers))
    ids = [item.task_run_id for items in given for item in items]
    assert sorted(len(items) for items in given) == [0, 10, 20, 20]
    assert len(set(ids)) == 50


async def test_the_limit_is_kept(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", queue="default", labels={}), max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id)] * 10)
    worker = await stage.register()
    assert len(await stage.claim(worker, 3)) == 3
    assert len(await stage.claim(worker, 100)) == 17
    assert await stage.claim(worker) == []


async def test_first_come_first_served(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    runs = []
    for _ in range(5):
        runs.append(await stage.submit(workflow_id))
        stage.clock.advance(1)
    worker = await stage.register()
    taken = [(await stage.claim(worker, 1))[0].run_id for _ in range(5)]
    assert taken == runs


async def test_first_come_first_served_within_one_submission(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    runs = [run.id for run in await stage.engine.submit_many([RunRequest(workflow_id)] * 20)]
    worker = await stage.register()
    assert [(await stage.claim(worker, 1))[0].run_id for _ in range(20)] == runs


async def test_priority_goes_first_and_ages(stage: Stage):
    low = await stage.define(task("low", priority=0), name="low", max_active_runs=0)
    high = await stage.define(task("high", priority=10), name="high", max_active_runs=0)
    worker = await stage.register()
    await stage.submit(low)
    stage.clock.advance(1)
    await stage.submit(high)
    assert [(await stage.claim(worker, 1))[0].task for _ in range(2)] == ["high", "low"]
    # A point of priority is worth a minute of waiting.
    await stage.submit(low)
    stage.clock.advance(10 * 60 + 1)
    await stage.submit(high)
    assert [(await stage.claim(worker, 1))[0].task for _ in range(2)] == ["low", "high"]


async def test_priority_counts_across_queues_of_one_worker(stage: Stage):
    await stage.start(task("low", priority=-5, queue="a"), task("high", priority=5, queue="b"))
    worker = await stage.register(queues=("a", "b"))
    assert [(await stage.claim(worker, 1))[0].task for _ in range(2)] == ["high", "low"]


async def test_queues_kinds_and_labels_must_fit(stage: Stage):
    await stage.start(
        task("plain"),
        task("queued", queue="big"),
        task("http", http={"url": "https://example.com/"}),
        task("labelled", labels={"gpu": "a100", "zone": "x"}),
    )
    seen = {}
    offers: dict[str, dict[str, Any]] = {
        "nothing": {"queues": ("other",)},
        "plain": {"labels": {"gpu": "a100"}},
        "queued": {"queues": ("big",)},
        "http": {"kinds": ("http",)},
        "labelled": {"labels": {"gpu": "a100", "zone": "x", "disk": "ssd"}},
    }
    for name, fields in offers.items():
        worker = await stage.register(**fields)
        seen[name] = [item.task for item in await stage.claim(worker)]
    assert seen == {
        "nothing": [],
        "plain": ["plain"],
        "queued": ["queued"],
        "http": ["http"],
        "labelled": ["labelled"],
    }


async def test_work_that_does_not_fit_never_hides_other_work(stage: Stage):
    foreign = await stage.define(task("a", queue="other"), name="foreign", max_active_runs=0)
    await stage.engine.submit_many([RunRequest(foreign)] * 300)
    stage.clock.advance(1)
    await stage.start(task("mine"))
    worker = await stage.register()
    assert [item.task for item in await stage.claim(worker, 1)] == ["mine"]


async def test_more_lanes_than_one_walk_looks_at(database_url: str, stage: Stage):
    for number in range(12):
        await stage.start(task("a", queue=f"q{number}"), name=f"flow{number}")
    async with open_node(database_url, stage.clock, lane_window=5) as node:
        worker = (await node.engine.register(Registration(queues=tuple(f"q{number}" for number in range(12))))).identity
        seen = []
        for _ in range(40):
            seen += [item.workflow for item in await node.engine.claim(worker, limit=1)]
        assert sorted(seen) == sorted(f"flow{number}" for number in range(12))


async def test_namespaces_share_fairly(stage: Stage):
    """A tenant with a thousand waiting task runs does not hold up one with ten."""
    loud = await stage.define(task("loud"), namespace="loud", max_active_runs=0)
    await stage.engine.submit_many([RunRequest(loud)] * 200)
    stage.clock.advance(60)
    quiet = await stage.define(task("quiet"), namespace="quiet", max_active_runs=0)
    await stage.engine.submit_many([RunRequest(quiet)] * 10)
    worker = await stage.register()
    first = [item.task for item in await stage.claim(worker, 10)]
    assert (first.count("loud"), first.count("quiet")) == (5, 5)
    singles = [(await stage.claim(worker, 1))[0].task for _ in range(10)]
    assert (singles.count("loud"), singles.count("quiet")) == (5, 5)
    # What the quiet one leaves goes to the other.
    assert len(await stage.claim(worker, 40)) == 40


async def test_many_namespaces_share_fairly(stage: Stage):
    for number in range(30):
        workflow_id = await stage.define(task(f"t{number}"), namespace=f"n{number}", max_active_runs=0)
        await stage.engine.submit_many([RunRequest(workflow_id)] * 4)
    worker = await stage.register()
    taken = [item.task for _ in range(60) for item in await stage.claim(worker, 1)]
    assert {taken.count(name) for name in set(taken)} == {2}
    assert len(set(taken)) == 30


async def test_an_unknown_worker_gets_nothing(stage: Stage):
    await stage.start(task("a"))
    known = await stage.register()
    for stranger in (WorkerIdentity(known.worker_id, "someone"), WorkerIdentity("someone", known.incarnation)):
        with pytest.raises(Unauthenticated) as caught:
            await stage.claim(stranger)
        assert caught.value.code == "unknown_worker"
    assert len(await stage.claim(known)) == 1


async def test_a_bad_caller_does_not_harm_those_in_the_same_transaction(stage: Stage):
    workflow_id = await stage.define(task("a"), max_active_runs=0)
    await stage.engine.submit_many([RunRequest(workflow_id)] * 3)
    worker = await stage.register()
    stranger = WorkerIdentity(worker.worker_id, "someone")
    answers = await asyncio.gather(
        *(stage.engine.claim(who, limit=1) for who in (worker, stranger, worker, stranger, worker)),
        return_exceptions=True,
    )
    assert [len(answer) if isinstance(answer, tuple) else type(answer) for answer in answers] == [
        1,
        Unauthenticated,
        1,
        Unauthenticated,
        1,
    ]


async def test_a_waiting_claim_is_woken_by_a_submission(stage: Stage):
    workflow_id = await stage.define(task("a"))
    worker = await stage.register()
    waiting = asyncio.create_task(stage.engine.claim(worker, limit=1, wait_seconds=60))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    async with asyncio.timeout(1.5):
        run_id = await stage.submit(workflow_id)
        assert [item.run_id for item in await waiting] == [run_id]


async def test_an_empty_claim_comes_back_in_time(stage: Stage):
    worker = await stage.register()
    assert await stage.engine.claim(worker, limit=1, wait_seconds=0.05) == ()
