"""advance: the trigger rules in real runs, against the pure domain."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import select

from rota.domain.rules import TriggerRule, count_outcomes, decide
from rota.domain.states import TaskState
from rota.engine.submit import RunRequest
from rota.store.tables import state_history
from tests.engine.stage import Stage, task

SCRIPTS = ("success", "failed", "skipped")
WORDS = {"run": "success", "skip": "skipped", "fail": "upstream_failed"}


@pytest.mark.parametrize("rule", [rule for rule in TriggerRule if rule is not TriggerRule.ALWAYS])
async def test_a_rule_over_every_combination_of_three_upstreams(stage: Stage, rule: TriggerRule):
    """Each combination is ended in one batch and one by one: the order and the grouping change nothing at the end."""
    workflow_id = await stage.define(
        task("a"), task("b"), task("c"), task("join", "a", "b", "c", trigger_rule=str(rule)), max_active_runs=0
    )
    worker = await stage.register(concurrency=1000)
    for combination in itertools.combinations_with_replacement(SCRIPTS, 3):
        script = dict(zip("abc", combination, strict=True))
        whole = await stage.submit(workflow_id)
        await stage.work(worker, script)
        piecewise = await stage.submit(workflow_id)
        for item in sorted(await stage.claim(worker), key=lambda item: item.task):
            await stage.finish(worker, [item], script[item.task], error_type="exit_code")
        await stage.work(worker)
        counters = count_outcomes(TaskState(outcome) for outcome in combination)
        expected = WORDS[decide(rule, counters)]
        assert (await stage.statuses(whole))["join"] == expected, combination
        assert (await stage.statuses(piecewise))["join"] in (expected, *_early(rule, combination)), combination


def _early(rule: TriggerRule, combination: tuple[str, ...]) -> set[str]:
    """What the rule may have decided before all upstreams had ended."""
    states = [TaskState.PENDING] * len(combination)
    for place, outcome in enumerate(combination):
        states[place] = TaskState(outcome)
        decision = decide(rule, count_outcomes(states))
        if decision != "wait":
            return {WORDS[decision]}
    return set()


async def test_always_does_not_wait(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a", trigger_rule="always"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["b"]])
    assert await stage.statuses(run_id) == {"a": "running", "b": "success"}
    await stage.finish(worker, [items["a"]], "failed")
    assert await stage.run_status(run_id) == "failed"


async def test_one_success_starts_before_the_others_end(stage: Stage):
    run_id = await stage.start(task("a"), task("b"), task("first", "a", "b", trigger_rule="one_success"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["b"]])
    (first,) = await stage.claim(worker)
    assert first.task == "first"
    await stage.finish(worker, [first])
    assert await stage.run_status(run_id) == "running"
    await stage.finish(worker, [items["a"]])
    assert await stage.run_status(run_id) == "success"


async def test_a_handled_failure_does_not_fail_the_run(stage: Stage):
    run_id = await stage.start(
        task("a"),
        task("b", "a"),
        task("repair", "a", trigger_rule="one_failed"),
        task("report", "b", "repair", trigger_rule="all_done"),
    )
    worker = await stage.register()
    assert await stage.work(worker, {"a": "failed"}) == ["a", "repair", "report"]
    assert await stage.run_status(run_id) == "success"


async def test_a_failed_repair_fails_the_run(stage: Stage):
    run_id = await stage.start(task("a"), task("repair", "a", trigger_rule="one_failed"))
    worker = await stage.register()
    await stage.work(worker, {"a": "failed", "repair": "failed"})
    assert await stage.run_status(run_id) == "failed"


async def test_clean_up_runs_after_failure_and_does_not_hide_it(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("clean", "a", "b", teardown=True))
    worker = await stage.register()
    assert await stage.work(worker, {"a": "failed"}) == ["a", "clean"]
    assert await stage.run_status(run_id) == "failed"


async def test_failed_clean_up_does_not_fail_the_run(stage: Stage):
    run_id = await stage.start(task("a"), task("clean", "a", teardown=True))
    await stage.work(await stage.register(), {"clean": "failed"})
    assert await stage.run_status(run_id) == "success"


async def test_a_failure_runs_through_a_long_chain(stage: Stage):
    names = [f"t{number}" for number in range(200)]
    chain = [task(names[0]), *(task(name, before) for before, name in itertools.pairwise(names))]
    run_id = await stage.start(*chain)
    await stage.work(await stage.register(), {"t0": "failed"})
    statuses = await stage.statuses(run_id)
    assert statuses.pop("t0") == "failed"
    assert set(statuses.values()) == {"upstream_failed"}
    assert await stage.run_status(run_id) == "failed"


async def test_a_long_chain_runs_in_order(stage: Stage):
    names = [f"t{number:02}" for number in range(40)]
    chain = [task(names[0]), *(task(name, before) for before, name in itertools.pairwise(names))]
    run_id = await stage.start(*chain)
    assert await stage.work(await stage.register()) == names
    assert await stage.run_status(run_id) == "success"


async def test_a_wide_join_counts_every_one(stage: Stage):
    names = [f"t{number}" for number in range(1_500)]
    run_id = await stage.start(task("start"), *(task(name, "start") for name in names), task("end", *names))
    worker = await stage.register(concurrency=1000)
    started = await stage.work(worker)
    assert (started[0], started[-1], len(started)) == ("start", "end", 1_502)
    assert await stage.run_status(run_id) == "success"


async def test_tasks_of_many_runs_end_in_one_batch(stage: Stage):
    workflow_id = await stage.define(task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c"), max_active_runs=0)
    runs = [run.id for run in await stage.engine.submit_many([RunRequest(workflow_id)] * 40)]
    worker = await stage.register(concurrency=1000)
    for expected in (40, 80, 40):
        items = await stage.claim(worker, 200)
        assert len(items) == expected
        await stage.finish(worker, items)
    assert {row.status for row in await stage.runs_of(workflow_id)} == {"success"}
    ends = await stage.rows(
        select(state_history.c.entity_id).where(
            state_history.c.entity_type == "workflow_run", state_history.c.new_state == "success"
        )
    )
    assert sorted(row.entity_id for row in ends) == sorted(str(run) for run in runs)


async def test_an_upstream_that_is_named_by_two_paths_counts_once_for_each(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("c", "a", "b"), task("d", "a", "b", "c"))
    assert await stage.work(await stage.register()) == ["a", "b", "c", "d"]
    assert await stage.run_status(run_id) == "success"
