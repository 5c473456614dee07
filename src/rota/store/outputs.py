"""Statements on the outputs that tasks leave for those after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import String, func, select

from rota.store.database import Transaction
from rota.store.dialect import Id, among, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_dependencies, task_runs, tasks, workflow_runs

_wanted = batch("wanted_outputs", run_id=Id(), name=String(200))
# Looked up one by one, so that it is always done by index: the run's version, and in it the task of this name.
_version = (
    select(workflow_runs.c.version_id)
    .where(workflow_runs.c.id == _wanted.c.run_id)
    .correlate(_wanted)
    .scalar_subquery()
)
_task = (
    select(tasks.c.id)
    .where(tasks.c.version_id == _version, tasks.c.name == _wanted.c.name)
    .correlate(_wanted)
    .scalar_subquery()
)
_located = select(_wanted.c.run_id, _wanted.c.name, _task.label("task_id")).cte("located").prefix_with("MATERIALIZED")
_READ = (
    select(_located.c.run_id, _located.c.name, task_runs.c.status, task_runs.c.output)
    .join(
        _located,
        (task_runs.c.run_id == _located.c.run_id)
        & (task_runs.c.task_id == _located.c.task_id)
        & (task_runs.c.map_index == -1),
    )
    .where(among(task_runs.c.run_id, select(_located.c.run_id).scalar_subquery()))
)


async def read_outputs(
    transaction: Transaction, wanted: Sequence[tuple[str, str]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """For (run id, task name): status and output of the task, by run and name."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in await transaction.rows(_READ, {"wanted_outputs": encode_rows(wanted)}):
        found.setdefault(row.run_id, {})[row.name] = {"status": row.status, "output": row.output}
    return found


class LeafOutputs(NamedTuple):
    """The outputs of runs, by the names of tasks; for those with too much of them, how much it is."""

    found: dict[str, dict[str, Any]]
    too_large: dict[str, int]


_t = task_runs.c
_leaves = batch("leaf_runs", id=Id())
_below = tasks.alias("below")
_next = (
    select(_below.c.id)
    .join(task_dependencies, task_dependencies.c.task_id == _below.c.id)
    .where(task_dependencies.c.depends_on_task_id == _t.task_id, _below.c.is_teardown.is_(False))
    .correlate(task_runs)
)
_is_leaf_output = (
    within(_t.run_id, select(_leaves.c.id).scalar_subquery()),
    _t.output.is_not(None),
    _t.status == constant("success"),
    _t.map_index == -1,
    _t.is_teardown.is_(False),
    ~_next.exists(),
)
_LEAF_SIZES = select(_t.run_id, func.sum(func.length(_t.output))).where(*_is_leaf_output).group_by(_t.run_id)
_LEAF_OUTPUTS = (
    select(
        _t.run_id,
        # Looked up one by one, so that it is always done by index.
        select(tasks.c.name).where(tasks.c.id == _t.task_id).scalar_subquery().label("name"),
        _t.output,
    )
    .where(*_is_leaf_output)
    .order_by(_t.id)
)


async def read_leaf_outputs(transaction: Transaction, run_ids: Sequence[str], most: int) -> LeafOutputs:
    """What runs leave: the outputs of those successful tasks that no other waits for, clean-up aside. Up to `most`
    characters of JSON for each run."""
    if not run_ids:
        return LeafOutputs({}, {})
    parameters = {"leaf_runs": encode_rows([(run_id,) for run_id in run_ids])}
    too_large = {row[0]: int(row[1]) for row in await transaction.rows(_LEAF_SIZES, parameters) if row[1] > most}
    fitting = [(run_id,) for run_id in run_ids if run_id not in too_large]
    found: dict[str, dict[str, Any]] = {run_id: {} for (run_id,) in fitting}
    for row in await transaction.rows(_LEAF_OUTPUTS, {"leaf_runs": encode_rows(fitting)}):
        found[row.run_id][row.name] = row.output
    return LeafOutputs(found, too_large)
