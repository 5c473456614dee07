"""Real workflow shapes, at one to two thousand tasks: they run to their end, with and without trouble on the way."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from rota.domain.work import Assignment, Finished, WorkerIdentity
from tests.engine.invariants import find_faults
from tests.engine.shapes import SHAPES
from tests.engine.stage import LEASE_SECONDS, Stage, settle


@pytest.fixture(params=sorted(SHAPES))
def items(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    make, width = SHAPES[request.param]
    made = list(make(width))
    assert len(made) == 300 or 1_000 <= len(made) <= 2_000
    return made


async def _take_all(stage: Stage, worker: WorkerIdentity) -> list[Assignment]:
    found: list[Assignment] = []
    while taken := await stage.claim(worker, 200):
        found += taken
    return found


async def test_it_runs_to_its_end_in_order(stage: Stage, items: list[dict[str, Any]]):
    run_id = await stage.start(*items, max_active_runs=0)
    order = {name: place for place, name in enumerate(await stage.work(await stage.register()))}
    assert await stage.run_status(run_id) == "success"
    assert order.keys() == {item["name"] for item in items}
    assert all(order[name] < order[item["name"]] for item in items for name in item.get("depends_on", ()))
    assert not await find_faults(stage.database)


async def test_it_runs_to_its_end_through_failures_and_losses(stage: Stage, items: list[dict[str, Any]]):
    """Every task may fail twice; some workers are lost; one task fails for good and takes what is below with it."""
    chance = random.Random(20260105)
    doomed = chance.choice([item["name"] for item in items if item.get("depends_on")])
    tried = [{**item, "retry_count": 0 if item["name"] == doomed else 2, "retry_delay_seconds": 0} for item in items]
    run_id = await stage.start(*tried, max_active_runs=0)
    worker = await stage.register()
    fails: Counter[str] = Counter()
    while held := await _take_all(stage, worker):
        lost = [item for item in held if chance.random() < 0.02]
        ends = [_end(item, doomed, fails, chance) for item in held if item not in lost]
        await stage.engine.report(worker, ends)
        if lost:
            stage.clock.advance(LEASE_SECONDS + 1)
            await stage.engine.reap_attempts()
            worker = await stage.register()
    await settle(stage)
    states = await stage.statuses(run_id)
    assert {name for name, state in states.items() if state != "success"} == _close(items, {doomed})
    assert (states[doomed], await stage.run_status(run_id)) == ("failed", "failed")
    assert not await find_faults(stage.database)
    await stage.engine.retry_run(run_id)
    await settle(stage)
    assert await stage.run_status(run_id) == "success"
    assert not await find_faults(stage.database)


def _end(item: Assignment, doomed: str, fails: Counter[str], chance: random.Random) -> Finished:
    is_failed = item.task == doomed or (fails[item.task] < 2 and chance.random() < 0.05)
    fails[item.task] += is_failed
    return Finished(item.task_run_id, item.attempt, "failed" if is_failed else "success", error_type="exit_code")


def _close(items: list[dict[str, Any]], names: set[str]) -> set[str]:
    """These tasks and all below them. Tasks come after those that they wait for."""
    for item in items:
        if names.intersection(item.get("depends_on", ())):
            names.add(item["name"])
    return names
