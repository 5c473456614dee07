"""Statements on the outputs that tasks leave for those after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import String, select

from rota.store.database import Transaction
from rota.store.dialect import Id, batch
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs, tasks

_wanted = batch("wanted_outputs", run_id=Id(), name=String(200))
_READ = (
    select(task_runs.c.run_id, tasks.c.name, task_runs.c.status, task_runs.c.output)
    .join(tasks, tasks.c.id == task_runs.c.task_id)
    .join(_wanted, (_wanted.c.run_id == task_runs.c.run_id) & (_wanted.c.name == tasks.c.name))
    .where(task_runs.c.map_index == -1)
)


async def read_outputs(
    transaction: Transaction, wanted: Sequence[tuple[str, str]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """For (run id, task name): status and output of the task, by run and name."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in await transaction.rows(_READ, {"wanted_outputs": encode_rows(wanted)}):
        found.setdefault(row.run_id, {})[row.name] = {"status": row.status, "output": row.output}
    return found
