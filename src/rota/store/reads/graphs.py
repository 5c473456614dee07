"""Runs as graphs and grids: the states of many task runs, in as few bytes as they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, case, func, select
from sqlalchemy.sql.functions import aggregate_strings

from rota.domain.states import TaskState
from rota.store.database import Transaction
from rota.store.dialect import Id, constant
from rota.store.reads.pages import ALWAYS, Listing, PageRequest, TimeRange, made_within, read_page
from rota.store.reads.runs import RUNS
from rota.store.tables import task_dependencies, task_runs, tasks, workflow_runs

_t = task_runs.c
_of = bindparam("of", type_=Id())
# One character for each state: a grid of 5,000 tasks is a string of 5,000 characters for each run.
STATE_LETTERS: Mapping[TaskState, str] = {
    TaskState.PENDING: "p",
    TaskState.QUEUED: "q",
    TaskState.RUNNING: "r",
    TaskState.RETRYING: "y",
    TaskState.SUCCESS: "s",
    TaskState.FAILED: "f",
    TaskState.UPSTREAM_FAILED: "u",
    TaskState.SKIPPED: "k",
    TaskState.CANCELLED: "c",
}
_letter = case(
    *((_t.status == constant(state), constant(letter)) for state, letter in STATE_LETTERS.items()),
    else_=constant("?"),
)
_cells_of = (
    select(_letter.label("letter"))
    # The order of the index, and that of the tasks in the definition: ids ascend within a version.
    .where(_t.run_id == workflow_runs.c.id, _t.map_index == -1)
    .order_by(_t.task_id)
    .correlate(workflow_runs)
    .subquery("cells_of")
)
_CELLS = (
    select(aggregate_strings(_cells_of.c.letter, "")).select_from(_cells_of).correlate(workflow_runs).scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class GridFilter:
    """Whose runs are wanted, and made when."""

    namespace: str
    workflow_id: str
    made: TimeRange = ALWAYS


async def read_grid(transaction: Transaction, wanted: GridFilter, page: PageRequest) -> Listing:
    """Runs of a workflow, the newest first, each with a letter for each of its tasks."""
    statement = RUNS.add_columns(_CELLS.label("cells"), workflow_runs.c.version_id).where(
        workflow_runs.c.namespace == wanted.namespace, workflow_runs.c.workflow_id == wanted.workflow_id
    )
    statement = statement.where(*made_within(workflow_runs.c.id, workflow_runs.c.created_at, wanted.made))
    return await read_page(transaction, statement, workflow_runs.c.id, page, is_counted=False)


_NAMES = select(tasks.c.name).where(tasks.c.version_id == _of).order_by(tasks.c.id)


async def read_task_names(transaction: Transaction, version_id: str) -> list[str]:
    """The tasks of a version in the order of their definition."""
    return [row.name for row in await transaction.rows(_NAMES, {"of": version_id})]


_NODES = (
    select(
        _t.id,
        _t.task_id,
        tasks.c.name,
        tasks.c.kind,
        tasks.c.is_teardown,
        _t.status,
        _t.trigger_rule,
        _t.attempt,
        _t.started_at,
        _t.finished_at,
    )
    .join(tasks, tasks.c.id == _t.task_id)
    .where(_t.run_id == _of, _t.map_index == -1)
    .order_by(tasks.c.position)
)


async def read_nodes(transaction: Transaction, run_id: str) -> Sequence[Any]:
    """The task runs of a run in the order of the definition, without the items of mapped tasks."""
    return await transaction.rows(_NODES, {"of": run_id})


_EDGES = (
    select(task_dependencies.c.depends_on_task_id, task_dependencies.c.task_id)
    .join(workflow_runs, workflow_runs.c.version_id == task_dependencies.c.version_id)
    .where(workflow_runs.c.id == _of)
)


async def read_edges(transaction: Transaction, run_id: str) -> list[tuple[str, str]]:
    """(id of the task that is waited for, id of the task that waits)."""
    return [(row[0], row[1]) for row in await transaction.rows(_EDGES, {"of": run_id})]


_ITEMS = (
    select(_t.task_id, _t.status, func.count().label("number"))
    .where(_t.run_id == _of, _t.map_index >= 0)
    .group_by(_t.task_id, _t.status)
)


async def count_items(transaction: Transaction, run_id: str) -> dict[str, dict[str, int]]:
    """For mapped tasks: how many of their items are in each state, by task id."""
    found: dict[str, dict[str, int]] = {}
    for row in await transaction.rows(_ITEMS, {"of": run_id}):
        found.setdefault(row.task_id, {})[row.status] = row.number
    return found
