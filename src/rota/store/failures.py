"""Statements on what failed in runs: how much, whether something handled it, and why."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import String, case, cast, func, select

from rota.domain.rules import HANDLES_FAILURE
from rota.store.database import Transaction
from rota.store.dialect import Id, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_dependencies, task_runs, tasks

_asked = batch("asked", id=Id())
_child = task_runs.alias("child")
_handler = (
    select(_child.c.id)
    .join(task_dependencies, task_dependencies.c.task_id == _child.c.task_id)
    .where(
        _child.c.run_id == task_runs.c.run_id,
        task_dependencies.c.depends_on_task_id == task_runs.c.task_id,
        _child.c.map_index == -1,
        _child.c.status == constant("success"),
        _child.c.trigger_rule.in_(sorted(HANDLES_FAILURE)),
    )
)
_FAILURES = (
    select(
        task_runs.c.run_id,
        func.sum(case((task_runs.c.status == constant("cancelled"), 1), else_=0)),
        func.sum(case((_handler.exists(), 0), else_=1)),
    )
    .where(
        within(task_runs.c.run_id, select(_asked.c.id).scalar_subquery()),
        task_runs.c.status.in_(["failed", "cancelled"]),
        task_runs.c.is_teardown.is_(False),
        # Items fail their mapped task.
        task_runs.c.map_index == -1,
    )
    .group_by(task_runs.c.run_id)
)


async def count_failures(transaction: Transaction, run_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For runs with failures: how many task runs were cancelled, and how many failures nothing handled."""
    parameters = {"asked": encode_rows([(run_id,) for run_id in run_ids])}
    return {row[0]: (row[1], row[2]) for row in await transaction.rows(_FAILURES, parameters)}


_FIRST = (
    select(task_runs.c.run_id, func.min(cast(task_runs.c.id, String)).label("id"))
    .where(
        within(task_runs.c.run_id, select(_asked.c.id).scalar_subquery()),
        task_runs.c.status == constant("failed"),
        task_runs.c.is_teardown.is_(False),
    )
    .group_by(task_runs.c.run_id)
)
_named = batch("named", id=Id())
_REASONS = select(
    task_runs.c.run_id,
    # Looked up one by one, so that it is always done by index.
    select(tasks.c.name).where(tasks.c.id == task_runs.c.task_id).scalar_subquery().label("name"),
    task_runs.c.error,
).where(within(task_runs.c.id, select(_named.c.id).scalar_subquery()))


async def read_reasons(transaction: Transaction, run_ids: Sequence[str]) -> dict[str, str]:
    """For runs with failed task runs: the first of these, and why it failed."""
    if not run_ids:
        return {}
    first = await transaction.rows(_FIRST, {"asked": encode_rows([(run_id,) for run_id in run_ids])})
    rows = await transaction.rows(_REASONS, {"named": encode_rows([(row.id,) for row in first])})
    return {row.run_id: f"{row.name}: {row.error or 'it failed'}" for row in rows}
