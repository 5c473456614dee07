"""Statements on what failed in runs: how much, and whether something handled it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import case, func, select

from rota.domain.rules import HANDLES_FAILURE
from rota.store.database import Transaction
from rota.store.dialect import Id, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_dependencies, task_runs

_asked = batch("asked", id=Id())
_child = task_runs.alias("child")
_handler = (
    select(_child.c.id)
    .join(task_dependencies, task_dependencies.c.task_id == _child.c.task_id)
    .where(
        _child.c.run_id == task_runs.c.run_id,
        task_dependencies.c.depends_on_task_id == task_runs.c.task_id,
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
    )
    .group_by(task_runs.c.run_id)
)


async def count_failures(transaction: Transaction, run_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """For runs with failures: how many task runs were cancelled, and how many failures nothing handled."""
    parameters = {"asked": encode_rows([(run_id,) for run_id in run_ids])}
    return {row[0]: (row[1], row[2]) for row in await transaction.rows(_FAILURES, parameters)}
