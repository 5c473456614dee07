"""Workflows, their versions and schedules, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Integer, String, and_, bindparam, or_, select

from rota.store.database import Transaction
from rota.store.dialect import Id
from rota.store.reads.pages import Listing, PageRequest, read_page
from rota.store.tables import schedules, tasks, workflow_versions, workflows

_w = workflows.c
_v = workflow_versions.c
_s = schedules.c

_WITH_FIRST_SCHEDULE = select(
    _w.id,
    _w.namespace,
    _w.name,
    _w.kind,
    _w.description,
    _w.tags,
    _w.is_active,
    _w.max_active_runs,
    _w.max_active_tasks,
    _w.current_version,
    _w.version,
    _w.created_at,
    _w.updated_at,
    _s.spec.label("schedule"),
    _s.next_due_at.label("next_run_at"),
).select_from(workflows.outerjoin(schedules, and_(_s.workflow_id == _w.id, _s.position == 0)))


@dataclass(frozen=True, slots=True)
class WorkflowFilter:
    """Which workflows are wanted."""

    namespace: str
    is_active: bool | None = None
    tag: str | None = None
    # A part of the name or of the description.
    text: str | None = None


def has_tag(tag: str) -> ColumnElement[bool]:
    """Whether a workflow has this tag. Tags are a JSON list of strings without quotes in them or around them."""
    return _w.tags.cast(String).contains(f'"{tag}"', autoescape=True)


async def list_workflows(transaction: Transaction, wanted: WorkflowFilter, page: PageRequest) -> Listing:
    """Workflows (not jobs), the newest first, each with its first schedule."""
    statement = _WITH_FIRST_SCHEDULE.where(_w.namespace == wanted.namespace, _w.kind == "workflow")
    if wanted.is_active is not None:
        statement = statement.where(_w.is_active.is_(wanted.is_active))
    if wanted.tag is not None:
        statement = statement.where(has_tag(wanted.tag))
    if wanted.text is not None:
        statement = statement.where(
            or_(
                _w.name.icontains(wanted.text, autoescape=True),
                _w.description.icontains(wanted.text, autoescape=True),
            )
        )
    return await read_page(transaction, statement, _w.id, page)


_ONE = _WITH_FIRST_SCHEDULE.where(_w.id == bindparam("wanted_id", type_=Id()))


async def read_workflow(transaction: Transaction, workflow_id: str) -> Any | None:
    """A workflow or job with its first schedule."""
    return await transaction.row(_ONE, {"wanted_id": workflow_id})


_VERSION_COLUMNS = (_v.id, _v.workflow_id, _v.number, _v.content_hash, _v.created_at)
_VERSION = select(*_VERSION_COLUMNS, _v.spec).where(
    _v.workflow_id == bindparam("owner", type_=Id()), _v.number == bindparam("wanted_number", type_=Integer())
)


async def read_version(transaction: Transaction, workflow_id: str, number: int) -> Any | None:
    """A version with its definition."""
    return await transaction.row(_VERSION, {"owner": workflow_id, "wanted_number": number})


async def list_versions(transaction: Transaction, workflow_id: str, page: PageRequest) -> Listing:
    """The versions of a workflow, the newest first."""
    statement = select(*_VERSION_COLUMNS).where(_v.workflow_id == workflow_id)
    return await read_page(transaction, statement, _v.id, page)


_TASKS = (
    select(
        tasks.c.id,
        tasks.c.workflow_id,
        tasks.c.name,
        tasks.c.kind,
        tasks.c.spec,
        tasks.c.retry_count,
        tasks.c.timeout_seconds,
        tasks.c.priority,
        tasks.c.created_at,
    )
    .join(workflows, _w.current_version_id == tasks.c.version_id)
    .where(_w.id == bindparam("owner", type_=Id()))
    .order_by(tasks.c.position)
)


async def read_current_tasks(transaction: Transaction, workflow_id: str) -> Sequence[Any]:
    """The tasks of a workflow's current version, in the order of the definition."""
    return await transaction.rows(_TASKS, {"owner": workflow_id})
