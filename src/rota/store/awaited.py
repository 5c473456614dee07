"""Statements that look for the runs, or tasks of them, that others wait for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Select, String, and_, select

from rota.store.database import Transaction
from rota.store.dialect import Id, Instant, among, batch, constant
from rota.store.encoding import encode_rows, to_microseconds
from rota.store.tables import schedules, task_runs, tasks, workflow_runs, workflows


class Asked(NamedTuple):
    """The runs of a workflow for a logical date, or a task of them, and the task run that asks."""

    id: str
    namespace: str
    workflow: str
    logical_at: datetime
    task: str | None = None


class Found(NamedTuple):
    """A run that was asked for. With a task its status counts; it is None where the run has no such task."""

    asked_id: str
    run_id: str
    status: str
    task_status: str | None


_asked = batch("asked", id=Id(), namespace=String(200), workflow=String(200))
_w = workflows.c
_is_named = (_w.namespace == _asked.c.namespace) & (_w.name == _asked.c.workflow) & (_w.kind == constant("workflow"))
_WORKFLOWS = select(_asked.c.id, _w.id.label("workflow_id")).select_from(_asked.join(workflows, _is_named))
_of = batch("of_workflows", id=Id())
# Outer joins, here and below: what is asked for is the only place from where a database can begin.
_SCHEDULES = select(_of.c.id.label("workflow_id"), schedules.c.id).select_from(
    _of.outerjoin(
        schedules,
        (schedules.c.workflow_id == _of.c.id) & among(schedules.c.workflow_id, select(_of.c.id).scalar_subquery()),
    )
)
# By workflow for runs that no schedule made, by schedule for the others.
_keyed = batch("keyed", id=Id(), key=Id(), logical_date=Instant(), task=String(200))
_k = _keyed.c
_r = workflow_runs.c
_task_status = (
    select(task_runs.c.status)
    .join(tasks, tasks.c.id == task_runs.c.task_id)
    .where(
        tasks.c.version_id == _r.version_id,
        tasks.c.name == _k.task,
        task_runs.c.run_id == _r.id,
        task_runs.c.map_index == -1,
    )
    .scalar_subquery()
)


def _find_by(column: Column[str], *conditions: ColumnElement[bool]) -> Select[Any]:
    is_theirs = and_(
        column == _k.key,
        _r.logical_date == _k.logical_date,
        among(column, select(_k.key).scalar_subquery()),
        among(_r.logical_date, select(_k.logical_date).scalar_subquery()),
        *conditions,
    )
    found = select(_k.id, _r.id.label("run_id"), _r.status, _task_status)
    return found.select_from(_keyed.outerjoin(workflow_runs, is_theirs))


_BY_WORKFLOW = _find_by(_r.workflow_id, _r.schedule_id.is_(None))
_BY_SCHEDULE = _find_by(_r.schedule_id)


async def find_awaited(transaction: Transaction, asked: Sequence[Asked]) -> tuple[set[str], list[Found]]:
    """The ids of those who ask for workflows that exist, and all runs that they ask for, older ones first."""
    rows = [(item.id, item.namespace, item.workflow) for item in asked]
    known = {row.id: row.workflow_id for row in await transaction.rows(_WORKFLOWS, {"asked": encode_rows(rows)})}
    of_workflow: dict[str, list[str]] = defaultdict(list)
    parameters = {"of_workflows": encode_rows([(workflow_id,) for workflow_id in set(known.values())])}
    for row in await transaction.rows(_SCHEDULES, parameters) if known else ():
        of_workflow[row.workflow_id] += [row.id] if row.id else []
    there = [item for item in asked if item.id in known]
    by_workflow = [_key(item, known[item.id]) for item in there]
    by_schedule = [_key(item, key) for item in there for key in of_workflow[known[item.id]]]
    found: list[Found] = []
    for statement, keyed in ((_BY_WORKFLOW, by_workflow), (_BY_SCHEDULE, by_schedule)):
        if keyed:
            rows_found = await transaction.rows(statement, {"keyed": encode_rows(keyed)})
            found += [Found(*row) for row in rows_found if row.run_id is not None]
    return set(known), sorted(found, key=lambda row: row.run_id)


def _key(item: Asked, key: str) -> tuple[Any, ...]:
    return (item.id, key, to_microseconds(item.logical_at), item.task)
