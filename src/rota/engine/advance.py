"""advance: what follows from the end of task runs, in the same transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.domain.rules import OUTCOME_COUNTER
from rota.domain.states import TaskState
from rota.engine.branches import explain_left_out
from rota.engine.core import Core, Ended, GateReport
from rota.engine.gate import pass_gate
from rota.engine.items import settle_items
from rota.engine.record import note_run, note_task
from rota.store import failures, releases, task_runs, turns, workflow_runs
from rota.store.database import Transaction
from rota.store.definitions import ROWS_PER_STATEMENT
from rota.store.history import Change
from rota.store.wakeups import Topic
from rota.store.workflow_runs import Settled

# Runs that end as soon as they start make room for others. Beyond so many in a row, the reaper gives the turns.
MAX_TURN_ROUNDS = 20
# Of one workflow, at once.
MAX_STARTS = 1000


@dataclass(slots=True)
class _Wave:
    """What is still to be followed up, and what has changed so far."""

    ended: list[Ended]
    # Gated task runs that were queued in this transaction.
    ready: list[str]
    changes: list[Change] = field(default_factory=list)

    def take(self, report: GateReport) -> None:
        self.ended += report.ended
        self.ready += report.ready
        self.changes += report.changes


async def advance(
    core: Core, transaction: Transaction, ended: Sequence[Ended], ready: Sequence[str] = ()
) -> list[Change]:
    """Counts ends for those that wait for them, decides those, and ends runs of which nothing remains.

    `ready` are the gated task runs that the caller has queued. The runs must be locked. Returns the changes of state,
    for the caller to record after its own.
    """
    wave = _Wave(list(ended), list(ready))
    for turn in range(MAX_TURN_ROUNDS):
        tallies = await _follow(core, transaction, wave)
        if not tallies:
            break
        settled = await workflow_runs.count_down(
            transaction, [(run_id, total, failed) for run_id, (total, failed) in sorted(tallies.items())]
        )
        done = await _end_runs(core, transaction, settled, wave)
        if turn < MAX_TURN_ROUNDS - 1:
            await _give_turns(transaction, done, wave)
    return wave.changes


async def _follow(core: Core, transaction: Transaction, wave: _Wave) -> dict[str, list[int]]:
    """Goes down the graphs until nothing more follows; how many ended in each run, and how many of these failed."""
    tallies: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    while wave.ended or wave.ready:
        if wave.ready:
            ready, wave.ready = wave.ready, []
            wave.take(await pass_gate(core, transaction, ready))
        ended, wave.ended = wave.ended, []
        items = [end for end in ended if end.map_index >= 0]
        if items:
            wave.take(await settle_items(core, transaction, items))
            ended = [end for end in ended if end.map_index < 0]
        for end in ended:
            tally = tallies[end.run_id]
            tally[0] += 1
            tally[1] += end.status in ("failed", "cancelled") and not end.is_teardown
        left_out = await explain_left_out(core, transaction, ended)
        if left_out:
            await _leave_out(transaction, left_out, wave)
        await _release(transaction, ended, wave)
    return tallies


async def _leave_out(transaction: Transaction, left_out: Sequence[tuple[str, str, str]], wave: _Wave) -> None:
    """Skips what branches have left out, before it is counted for it that they have ended."""
    for start in range(0, len(left_out), ROWS_PER_STATEMENT):
        part = left_out[start : start + ROWS_PER_STATEMENT]
        reasons = {(run_id, task_id): reason for run_id, task_id, reason in part}
        for row in await releases.leave_out(transaction, part):
            details = {"reason": reasons[row.run_id, row.task_id]}
            wave.changes.append(note_task(row.id, row.run_id, row.namespace, "pending", row.status, details))
            wave.ended.append(Ended(row.run_id, row.task_id, row.status, row.downstream_count, row.is_teardown, -1))


async def _release(transaction: Transaction, ended: Iterable[Ended], wave: _Wave) -> None:
    """One step down the graph."""
    counts = [_count(end) for end in ended if end.downstream_count]
    if not counts:
        return
    for row in await releases.release_dependents(transaction, counts):
        if row.status == "pending":
            continue
        wave.changes.append(note_task(row.id, row.run_id, row.namespace, "pending", row.status))
        if row.status == "queued":
            transaction.wake(Topic.QUEUE)
            if row.is_gated:
                wave.ready.append(row.id)
        else:
            wave.ended.append(Ended(row.run_id, row.task_id, row.status, row.downstream_count, row.is_teardown, -1))


def _count(end: Ended) -> tuple[str, str, int, int, int]:
    counter = OUTCOME_COUNTER[TaskState(end.status)]
    return (end.run_id, end.task_id, int(counter == "succeeded"), int(counter == "failed"), int(counter == "skipped"))


async def _end_runs(core: Core, transaction: Transaction, settled: Sequence[Settled], wave: _Wave) -> list[Settled]:
    """Ends those of which nothing remains, and returns them."""
    done = [run for run in settled if run.remaining == 0]
    outcomes = {run.id: run.status for run in done if run.status != "running"}
    unclear = [run for run in done if run.status == "running"]
    is_untold = any(run.is_untold for run in done)
    if unclear:
        outcomes |= await _decide_outcomes(transaction, unclear)
        is_untold |= await workflow_runs.end_runs(transaction, [(run.id, outcomes[run.id]) for run in unclear])
    if is_untold:
        core.follow_up.soon(transaction)
    wave.changes += [
        note_run(run.id, run.namespace, "running", outcomes[run.id], {"workflow_id": run.workflow_id}) for run in done
    ]
    return done


async def _give_turns(transaction: Transaction, done: Sequence[Settled], wave: _Wave) -> None:
    for workflow_id in sorted({run.workflow_id for run in done if run.makes_room}):
        changes, ready = await _start_runs(transaction, workflow_id)
        wave.changes += changes
        wave.ready += ready


async def _decide_outcomes(transaction: Transaction, runs: Sequence[Settled]) -> dict[str, str]:
    """Runs with failures or a request to cancel: the only ones whose task runs are looked at again."""
    found = await failures.count_failures(transaction, [run.id for run in runs])
    outcomes = {}
    for run in runs:
        cancelled, unhandled = found.get(run.id, (0, 0))
        if run.is_cancelling and cancelled:
            outcomes[run.id] = "cancelled"
        else:
            outcomes[run.id] = "failed" if unhandled else "success"
    return outcomes


async def start_turns(core: Core, transaction: Transaction, workflow_id: str) -> list[Change]:
    """Starts waiting runs of a workflow for which there is a free turn now, and all that follows from it."""
    changes, ready = await _start_runs(transaction, workflow_id)
    return changes + await advance(core, transaction, [], ready)


async def _start_runs(transaction: Transaction, workflow_id: str) -> tuple[list[Change], list[str]]:
    free = (await turns.lock_free_turns(transaction, [workflow_id])).get(workflow_id, 0)
    started = await turns.start_waiting_runs(transaction, workflow_id, min(free, MAX_STARTS)) if free else []
    if not started:
        return [], []
    changes = [note_run(run.id, run.namespace, "pending", "running") for run in started]
    queued = await task_runs.queue_first_tasks(transaction, [run.id for run in started])
    changes += [note_task(row.id, row.run_id, row.namespace, "pending", "queued") for row in queued]
    transaction.wake(Topic.QUEUE)
    return changes, [row.id for row in queued if row.is_gated]
