"""Workflow runs, task runs, attempts and their history, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, or_, select

from rota.store.database import Transaction
from rota.store.dialect import Id, batch, constant
from rota.store.encoding import encode_rows
from rota.store.reads.pages import ALWAYS, Listing, PageRequest, TimeRange, made_within, read_page
from rota.store.reads.workflows import has_tag
from rota.store.tables import attempts, state_history, task_runs, tasks, workflow_runs, workflow_versions, workflows
from rota.store.tables_links import run_labels

_w = workflows.c
_r = workflow_runs.c
_t = task_runs.c
_a = attempts.c
_h = state_history.c

RUNS = select(
    _r.id,
    _r.namespace,
    _r.workflow_id,
    _w.name.label("workflow"),
    workflow_versions.c.number.label("workflow_version"),
    _r.schedule_id,
    _r.backfill_id,
    _r.trigger,
    _r.status,
    _r.logical_date,
    _r.params,
    _r.note,
    _r.labels,
    _r.rerun_of,
    _r.task_count,
    _r.remaining,
    _r.failed_count,
    _r.cancel_requested_at,
    _r.cancel_reason,
    _r.parent_run_id,
    _r.parent_task_run_id,
    _r.depth,
    _r.deadline_at,
    _r.created_at,
    _r.started_at,
    _r.finished_at,
).select_from(
    workflow_runs.join(workflows, _w.id == _r.workflow_id).join(
        workflow_versions, workflow_versions.c.id == _r.version_id
    )
)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs, or task runs, are wanted."""

    namespace: str
    statuses: Sequence[str] = ()
    workflow_id: str | None = None
    run_id: str | None = None
    made: TimeRange = ALWAYS
    # A tag of the workflow.
    tag: str | None = None
    # A part of the names or of the note.
    text: str | None = None
    labels: Sequence[tuple[str, str]] = ()
    # For runs: those that this task run has started.
    parent_task_run_id: str | None = None
    # Of task runs only: the name of the task, and which of its items.
    task: str | None = None
    map_index: int | None = None
    trigger: str | None = None


# The ends that are rare, and therefore have an index: its own words, for the planners to recognise it.
_RARE_ENDS = ("cancelled", "failed")
_is_rare_end = _r.status.in_([constant(state) for state in _RARE_ENDS])
_l = run_labels.c


async def list_runs(transaction: Transaction, wanted: RunFilter, page: PageRequest) -> Listing:
    """Workflow runs, the newest first."""
    statement = RUNS.where(*_list_conditions(wanted))
    if not wanted.labels:
        return await read_page(transaction, statement, _r.id, page)
    return await read_page(transaction, _with_labels(statement, wanted), _l.run_id, page)


def _list_conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    conditions = [_r.namespace == wanted.namespace, *made_within(_r.id, _r.created_at, wanted.made)]
    if wanted.statuses:
        conditions.append(_r.status.in_(wanted.statuses))
        conditions += [_is_rare_end] if set(wanted.statuses) <= set(_RARE_ENDS) else []
    same = {
        _r.workflow_id: wanted.workflow_id,
        _r.parent_task_run_id: wanted.parent_task_run_id,
        _r.trigger: wanted.trigger,
    }
    conditions += [column == value for column, value in same.items() if value is not None]
    if wanted.tag is not None:
        conditions.append(has_tag(wanted.tag))
    if wanted.text is not None:
        names = (_w.name, _r.note)
        conditions.append(or_(*(column.icontains(wanted.text, autoescape=True) for column in names)))
    return conditions


def _with_labels(statement: Select[Any], wanted: RunFilter) -> Select[Any]:
    """Goes along the index of the first label, and looks for the others in the runs that have it."""
    (key, value), *others = wanted.labels
    statement = statement.join(run_labels, _l.run_id == _r.id).where(
        _l.namespace == wanted.namespace, _l.key == key, _l.value == value
    )
    for key, value in others:
        other = run_labels.alias()
        has_other = select(other.c.run_id).where(other.c.run_id == _r.id, other.c.key == key, other.c.value == value)
        statement = statement.where(has_other.exists())
    return statement


_RUN = RUNS.where(_r.id == bindparam("wanted_id", type_=Id()), _r.namespace == bindparam("wanted_namespace"))


async def read_run(transaction: Transaction, namespace: str, run_id: str) -> Any | None:
    return await transaction.row(_RUN, {"wanted_id": run_id, "wanted_namespace": namespace})


_TASK_RUNS = select(
    _t.id,
    _t.run_id,
    _t.run_id.label("workflow_run_id"),
    _t.workflow_id,
    _w.name.label("workflow"),
    _t.task_id,
    tasks.c.name.label("task"),
    tasks.c.kind,
    _t.map_index,
    _t.status,
    _t.trigger_rule,
    _t.attempt,
    _t.retry_count,
    _t.failure_count,
    _t.lost_count,
    _t.priority,
    _t.due_at,
    _t.queued_at,
    _t.started_at,
    _t.finished_at,
    _t.worker_id,
    _t.holder,
    _t.waiting_for,
    _t.cancel_requested_at,
    _t.exit_code,
    _t.error_type,
    _t.error,
    _t.usage,
    _t.is_unconfirmed,
    _t.created_at,
).select_from(task_runs.join(tasks, tasks.c.id == _t.task_id).join(workflows, _w.id == _t.workflow_id))


def _select_task_runs(wanted: RunFilter) -> Select[Any]:
    statement = _TASK_RUNS.where(_t.namespace == wanted.namespace, *made_within(_t.id, _t.created_at, wanted.made))
    if wanted.statuses:
        statement = statement.where(_t.status.in_(wanted.statuses))
        if list(wanted.statuses) == ["failed"]:
            # In the words of the index of those.
            statement = statement.where(_t.status == constant("failed"))
    if wanted.tag is not None:
        statement = statement.where(has_tag(wanted.tag))
    if wanted.text is not None:
        statement = statement.where(tasks.c.name.icontains(wanted.text, autoescape=True))
    if wanted.workflow_id is not None:
        statement = statement.where(_t.workflow_id == wanted.workflow_id)
    if wanted.run_id is not None:
        statement = statement.where(_t.run_id == wanted.run_id)
    if wanted.task is not None:
        statement = statement.where(tasks.c.name == wanted.task)
    if wanted.map_index is not None:
        statement = statement.where(_t.map_index == wanted.map_index)
    return statement


async def list_task_runs(transaction: Transaction, wanted: RunFilter, page: PageRequest) -> Listing:
    """Task runs, the newest first."""
    return await read_page(transaction, _select_task_runs(wanted), _t.id, page)


# Of each mapped task; the others are found in pages, by the name of their task.
MAX_ITEMS_SHOWN = 1_000
_OF_RUN = _TASK_RUNS.where(_t.run_id == bindparam("wanted_run", type_=Id()), _t.map_index < MAX_ITEMS_SHOWN).order_by(
    tasks.c.position, _t.map_index
)


async def read_task_runs_of(transaction: Transaction, run_id: str) -> Sequence[Any]:
    """The task runs of a run, in the order of the definition; of mapped tasks the first items."""
    return await transaction.rows(_OF_RUN, {"wanted_run": run_id})


_TASK_RUN = _TASK_RUNS.add_columns(_t.output, _t["item"]).where(
    _t.id == bindparam("wanted_id", type_=Id()), _t.namespace == bindparam("wanted_namespace")
)


async def read_task_run(transaction: Transaction, namespace: str, task_run_id: str) -> Any | None:
    """A task run with its output, and its item if it is one of a mapped task."""
    return await transaction.row(_TASK_RUN, {"wanted_id": task_run_id, "wanted_namespace": namespace})


_of = batch("wanted_task_runs", id=Id())
_ATTEMPTS = (
    select(
        _a.task_run_id,
        _a.attempt,
        _a.status,
        _a.worker_id,
        _a.started_at,
        _a.finished_at,
        _a.exit_code,
        _a.error_type,
        _a.error,
        _a.usage,
        _a.is_unconfirmed,
    )
    .where(_a.task_run_id.in_(select(_of.c.id)))
    .order_by(_a.task_run_id, _a.attempt)
)


async def read_attempts(transaction: Transaction, task_run_ids: Sequence[str]) -> Sequence[Any]:
    """The attempts of these task runs that another one has followed; the last one is the task run's own."""
    parameters = {"wanted_task_runs": encode_rows([(task_run_id,) for task_run_id in task_run_ids])}
    return await transaction.rows(_ATTEMPTS, parameters)


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """Which changes are wanted, after which one, and how many at most."""

    namespace: str
    # The run, workflow, worker or schedule that the changes belong to.
    root_id: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    since_seq: int = 0
    limit: int = 20


async def read_history(transaction: Transaction, wanted: HistoryFilter) -> Sequence[Any]:
    """Changes of state in the order in which they were recorded. Those of workers belong to no namespace."""
    statement = select(
        _h.seq, _h.entity_type, _h.entity_id, _h.root_id, _h.old_state, _h.new_state, _h.changed_at, _h.metadata
    ).where(_h.namespace.in_([wanted.namespace, ""]), _h.seq > wanted.since_seq)
    if wanted.root_id is not None:
        statement = statement.where(_h.root_id == wanted.root_id)
    if wanted.entity_type is not None:
        statement = statement.where(_h.entity_type == wanted.entity_type)
    if wanted.entity_id is not None:
        statement = statement.where(_h.entity_id == wanted.entity_id)
    return await transaction.rows(statement.order_by(_h.seq).limit(wanted.limit))


_ROOT = select(_t.run_id).where(_t.id == bindparam("wanted_id", type_=Id()))


async def find_history_root(transaction: Transaction, entity_id: str) -> str:
    """Under which id the changes of an entity are found: a task run's under its run, others under their own."""
    row = await transaction.row(_ROOT, {"wanted_id": entity_id})
    return entity_id if row is None else str(row.run_id)
