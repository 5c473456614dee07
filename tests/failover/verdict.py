"""What must be so once all is quiet, read from the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select

from rota.domain.states import RUN_FINAL, TASK_FINAL
from rota.store.database import Database, DatabaseOptions, Transaction
from rota.store.tables import task_runs, workflow_runs, workflows
from tests.engine.invariants import find_faults

TICK = timedelta(seconds=1)


async def judge(database_url: str, acknowledged: Collection[str]) -> tuple[list[str], list[str]]:
    """Faults, and what else is worth knowing."""
    database = Database(DatabaseOptions(database_url))
    try:
        faults = await find_faults(database)
        runs, tasks, names = await database.read(_read)
    finally:
        await database.close()
    faults += [f"run {row.id} is still {row.status}" for row in runs if row.status not in RUN_FINAL]
    faults += [f"task run {row.id} is still {row.status}" for row in tasks if row.status not in TASK_FINAL]
    faults += _judge_jobs(runs, acknowledged)
    ticks = [row for row in runs if names[row.workflow_id] == "ticker"]
    faults += _judge_ticks(ticks)
    lateness = sorted((row.created_at - row.logical_date).total_seconds() for row in ticks)
    ended = Counter(row.status for row in runs)
    late = f"median {lateness[len(lateness) // 2]:.3f} s, most {lateness[-1]:.1f} s" if lateness else "none"
    notes = [
        f"{len(ticks)} ticks, one each second; how late their runs were made: {late}",
        f"{len(acknowledged)} jobs acknowledged, runs that ended: {dict(ended)}",
    ]
    return faults, notes


async def _read(transaction: Transaction) -> tuple[Any, Any, dict[str, str]]:
    names = await transaction.rows(select(workflows.c.id, workflows.c.name))
    return (
        await transaction.rows(select(workflow_runs).order_by(workflow_runs.c.logical_date)),
        await transaction.rows(select(task_runs.c.id, task_runs.c.status)),
        {row.id: row.name for row in names},
    )


def _judge_jobs(runs: Any, acknowledged: Collection[str]) -> list[str]:
    by_job: dict[str, list[str]] = {}
    for row in runs:
        by_job.setdefault(row.workflow_id, []).append(row.status)
    return [
        f"job {job} was acknowledged and its runs are {by_job.get(job)}"
        for job in acknowledged
        if by_job.get(job) != ["success"]
    ]


def _judge_ticks(ticks: Any) -> list[str]:
    if not ticks:
        return ["no tick has fired"]
    counts = Counter(row.logical_date for row in ticks)
    moment, last = min(counts), max(counts)
    faults = [f"the tick of {when} fired {count} times" for when, count in counts.items() if count != 1]
    while moment <= last:
        if moment not in counts:
            faults.append(f"the tick of {moment} never fired")
        moment += TICK
    faults += [f"the tick of {row.logical_date} ended {row.status}" for row in ticks if row.status != "success"]
    return faults


async def count_open(database_url: str) -> int:
    """Runs that have not ended."""
    database = Database(DatabaseOptions(database_url))
    query = select(func.count()).select_from(workflow_runs).where(workflow_runs.c.status.in_(["pending", "running"]))
    try:
        row = await database.read(lambda transaction: transaction.row(query))
    finally:
        await database.close()
    return int(row[0]) if row is not None else 0
