"""advance: what follows from the end of task runs, in the same transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.domain.rules import OUTCOME_COUNTER
from rota.domain.states import TaskState
from rota.engine.core import Core
from rota.engine.record import note_run, note_task
from rota.store import releases, task_runs, workflow_runs
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.wakeups import Topic
from rota.store.workflow_runs import Settled


class Ended(NamedTuple):
    """A task run that became final in this transaction."""

    run_id: str
    task_id: str
    status: str
    downstream_count: int
    is_teardown: bool


async def advance(core: Core, transaction: Transaction, ended: Sequence[Ended]) -> list[Change]:
    """Counts ends for those that wait for them, decides those, and ends runs of which nothing remains.

    The runs must be locked. Returns the changes of state, for the caller to record with its own.
    """
    changes: list[Change] = []
    tallies: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    wave = list(ended)
    while wave:
        for end in wave:
            tally = tallies[end.run_id]
            tally[0] += 1
            tally[1] += end.status in ("failed", "cancelled") and not end.is_teardown
        wave = await _release(transaction, wave, changes)
    if tallies:
        settled = await workflow_runs.count_down(
            transaction, [(run_id, total, failed) for run_id, (total, failed) in sorted(tallies.items())]
        )
        changes += await _end_runs(transaction, settled)
    return changes


async def _release(transaction: Transaction, wave: Iterable[Ended], changes: list[Change]) -> list[Ended]:
    """One step down the graph; returns the task runs that became final by it."""
    counts = [_count(end) for end in wave if end.downstream_count]
    if not counts:
        return []
    following: list[Ended] = []
    for row in await releases.release_dependents(transaction, counts):
        if row.status == "pending":
            continue
        changes.append(note_task(row.id, row.run_id, row.namespace, "pending", row.status))
        if row.status == "queued":
            transaction.wake(Topic.QUEUE)
        else:
            following.append(Ended(row.run_id, row.task_id, row.status, row.downstream_count, row.is_teardown))
    return following


def _count(end: Ended) -> tuple[str, str, int, int, int]:
    counter = OUTCOME_COUNTER[TaskState(end.status)]
    return (end.run_id, end.task_id, int(counter == "succeeded"), int(counter == "failed"), int(counter == "skipped"))


async def _end_runs(transaction: Transaction, settled: Sequence[Settled]) -> list[Change]:
    done = [run for run in settled if run.remaining == 0]
    outcomes = {run.id: run.status for run in done if run.status != "running"}
    unclear = [run for run in done if run.status == "running"]
    if unclear:
        outcomes |= await _decide_outcomes(transaction, unclear)
        await workflow_runs.end_runs(transaction, [(run.id, outcomes[run.id]) for run in unclear])
    changes = [
        note_run(run.id, run.namespace, "running", outcomes[run.id], {"workflow_id": run.workflow_id}) for run in done
    ]
    for workflow_id in sorted({run.workflow_id for run in done if run.is_limited}):
        changes += await start_turns(transaction, workflow_id)
    return changes


async def _decide_outcomes(transaction: Transaction, runs: Sequence[Settled]) -> dict[str, str]:
    """Runs with failures or a request to cancel: the only ones whose task runs are looked at again."""
    failures = await workflow_runs.count_failures(transaction, [run.id for run in runs])
    outcomes = {}
    for run in runs:
        cancelled, unhandled = failures.get(run.id, (0, 0))
        if run.is_cancelling and cancelled:
            outcomes[run.id] = "cancelled"
        else:
            outcomes[run.id] = "failed" if unhandled else "success"
    return outcomes


async def start_turns(transaction: Transaction, workflow_id: str) -> list[Change]:
    """Starts waiting runs of a workflow for which there is a free turn now."""
    turns = await workflow_runs.lock_free_turns(transaction, [workflow_id])
    free = turns.get(workflow_id, 0)
    started = await workflow_runs.start_waiting_runs(transaction, workflow_id, min(free, 1000)) if free else []
    if not started:
        return []
    changes = [note_run(run.id, run.namespace, "pending", "running") for run in started]
    queued = await task_runs.queue_first_tasks(transaction, [run.id for run in started])
    changes += [note_task(row.id, row.run_id, row.namespace, "pending", "queued") for row in queued]
    transaction.wake(Topic.QUEUE)
    return changes
