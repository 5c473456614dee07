"""What must be so once everything has drained, read from the database, the effects of the tasks, and /proc."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from rota.domain.states import RUN_FINAL, TASK_FINAL
from rota.store.database import Database, DatabaseOptions, Transaction
from rota.store.tables import state_history, task_runs, tasks, workflow_runs
from rota.store.tables_service import workers
from tests.chaos.report import Report
from tests.engine.invariants import find_faults

Effects = Mapping[str, Sequence[str]]


async def judge(
    database_url: str, report: Report, *, acknowledged: Sequence[str], cancelled: Sequence[str], effects: Effects
) -> None:
    """Adds to the report what is found, and every fault."""
    database = Database(DatabaseOptions(database_url))
    try:
        report.faults += await find_faults(database)
        runs, rows, moves, owners = await database.read(_read)
    finally:
        await database.close()
    _judge_runs(report, runs, acknowledged, cancelled)
    _judge_task_runs(report, rows)
    _judge_history(report, rows, moves)
    _judge_effects(report, rows, effects)
    for row in owners:
        report.check(row.status == "inactive", f"worker {row.name} {row.id} is still {row.status}")
    report.count("workers registered", len(owners))


async def _read(transaction: Transaction) -> tuple[Any, Any, Any, Any]:
    named = select(task_runs, tasks.c.name.label("task")).join(tasks, tasks.c.id == task_runs.c.task_id)
    history = select(state_history).where(state_history.c.entity_type == "task_run").order_by(state_history.c.seq)
    return (
        await transaction.rows(select(workflow_runs)),
        await transaction.rows(named),
        await transaction.rows(history),
        await transaction.rows(select(workers)),
    )


def _judge_runs(report: Report, runs: Sequence[Any], acknowledged: Sequence[str], cancelled: Sequence[str]) -> None:
    states = {row.id: row.status for row in runs}
    for status, number in Counter(states.values()).items():
        report.count(f"runs that ended {status}", number)
    for run_id, status in states.items():
        report.check(status in RUN_FINAL, f"run {run_id} is still {status}")
    for run_id in acknowledged:
        report.check(run_id in states, f"run {run_id} was acknowledged and is gone")
    for run_id in cancelled:
        # What was running may have come to its end before the order reached it.
        report.check(states.get(run_id) in RUN_FINAL, f"run {run_id} was cancelled and is {states.get(run_id)}")
    report.count("runs without an acknowledgement", len(set(states) - set(acknowledged)))


def _judge_task_runs(report: Report, rows: Sequence[Any]) -> None:
    for row in rows:
        name = f"task run {row.id} ({row.task})"
        report.check(row.status in TASK_FINAL, f"{name} is still {row.status}")
        report.check(row.lease_expires_at is None, f"{name} still has a lease")
        report.count(f"task runs that ended {row.status}")
        report.count("attempts started", row.attempt)
        report.count("attempts lost", row.lost_count)
        report.count("attempts that failed", row.failure_count)
        report.count("task runs given up as poison", int(row.error_type == "poison"))


def _judge_history(report: Report, rows: Sequence[Any], moves: Sequence[Any]) -> None:
    """Each attempt ended once, and a success is the last word."""
    ends: Counter[tuple[str, int]] = Counter()
    successes: Counter[str] = Counter()
    for entry in moves:
        details = entry.metadata or {}
        if details.get("event") == "ignored late result":
            report.count("late results refused")
            report.count(f"late results refused: {details['reported']}")
        elif entry.old_state == "running":
            ends[entry.entity_id, details["attempt"]] += 1
            successes[entry.entity_id] += entry.new_state == "success"
    for row in rows:
        expected = int(row.status == "success")
        report.check(successes[row.id] == expected, f"{row.id} is {row.status}, {successes[row.id]} successes recorded")
        told = [ends[row.id, attempt] for attempt in range(1, row.attempt + 1)]
        report.check(all(count == 1 for count in told), f"{row.id}: its attempts ended {told} times")


def _judge_effects(report: Report, rows: Sequence[Any], effects: Effects) -> None:
    """No attempt was executed twice, and no success was recorded that did not happen."""
    repeated = 0
    for row in rows:
        lines = Counter(effects.get(f"{row.run_id}.{row.task}", ()))
        by_word: dict[str, int] = defaultdict(int)
        for line, count in lines.items():
            word, _, attempt = line.partition(" ")
            by_word[word] += count
            report.check(count == 1, f"{row.id} ({row.task}): {count} times {line!r}")
            report.check(int(attempt) <= row.attempt, f"{row.id} ({row.task}): {line!r}, of {row.attempt} attempts")
        repeated += by_word["end"] > 1
        if row.status == "success":
            is_done = f"end {row.attempt}" in lines
            report.check(is_done, f"{row.id} ({row.task}) is recorded as a success of attempt {row.attempt}: {lines}")
    report.count("task runs whose effect happened more than once", repeated)
