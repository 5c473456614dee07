"""The table of trigger rules: every rule over up to four upstreams, ended in every way and order, through the engine.

All runs of one size go side by side: one step ends the same upstream of each, as its own row of the table says.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from rota.domain.rules import DECIDED_STATE, TriggerRule, count_outcomes, decide
from rota.domain.states import TaskState
from rota.domain.work import Finished, WorkerIdentity
from rota.engine.submit import RunRequest
from rota.store import interventions
from tests.engine.stage import Stage, task

OUTCOMES = tuple(
    map(TaskState, ("success", "failed", "skipped", "cancelled", "upstream_failed")),
)
Table = Mapping[str, tuple[TaskState, ...]]


async def _start(stage: Stage, size: int) -> Table:
    """A run for each row: upstreams u0…, each behind a task of its own, and one task for each rule below them all."""
    upstreams = [f"u{place}" for place in range(size)]
    workflow_id = await stage.define(
        *(task(f"before-{name}", queue=f"before-{name}") for name in upstreams),
        *(task(name, f"before-{name}", queue=name) for name in upstreams),
        *(task(str(rule), *upstreams, trigger_rule=str(rule), queue="below") for rule in TriggerRule),
        name=f"size-{size}",
        max_active_runs=0,
    )
    table = list(itertools.product(OUTCOMES, repeat=size))
    runs = await stage.engine.submit_many([RunRequest(workflow_id)] * len(table))
    return {str(run.id): row for run, row in zip(runs, table, strict=True)}


async def _end(stage: Stage, worker: WorkerIdentity, table: Table, place: int) -> None:
    """Ends the upstream at this place in every run."""
    before = {item.run_id: item for item in await stage.claim(worker, 1000)}
    ends = []
    for run_id, item in before.items():
        is_cut = table[run_id][place] is TaskState.UPSTREAM_FAILED
        ends.append(Finished(item.task_run_id, item.attempt, "failed" if is_cut else "success"))
    await stage.engine.report(worker, ends)


async def _finish(stage: Stage, worker: WorkerIdentity, table: Table, place: int) -> None:
    ends = []
    cancelled = []
    for item in await stage.claim(worker, 1000):
        outcome = table[item.run_id][place]
        if outcome is TaskState.CANCELLED:
            cancelled.append(item.task_run_id)
        ends.append(Finished(item.task_run_id, item.attempt, str(outcome)))
    # As a cancel of each does it, for all at once.
    await stage.database.transact(lambda tx: interventions.ask_running(tx, cancelled))
    await stage.engine.report(worker, ends)


@pytest.mark.parametrize("size", range(5))
async def test_the_engine_decides_like_the_table(stage: Stage, size: int):
    table = await _start(stage, size)
    expected = {run_id: dict.fromkeys(TriggerRule, TaskState.PENDING) for run_id in table}
    for ended in range(size + 1):
        if ended:
            name = f"u{ended - 1}"
            await _end(stage, await stage.register(queues=(f"before-{name}",)), table, ended - 1)
            await _finish(stage, await stage.register(queues=(name,)), table, ended - 1)
        for run_id, row in table.items():
            open_ones = [TaskState.PENDING] * (size - ended)
            counters = count_outcomes([*row[:ended], *open_ones])
            for rule, state in expected[run_id].items():
                if state is TaskState.PENDING:
                    expected[run_id][rule] = DECIDED_STATE[decide(rule, counters)]
        states = await stage.states_of(list(table))
        for run_id, row in table.items():
            found = {rule: states[run_id][str(rule)] for rule in TriggerRule}
            assert found == expected[run_id], (row, ended)
