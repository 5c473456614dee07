"""Statements behind the review of ended runs: which ones are to be looked at, and how the ones before them ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Integer, bindparam, or_, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, among, batch, constant, flag, within
from rota.store.encoding import EPOCH, encode_rows
from rota.store.tables import workflow_runs, workflow_versions, workflows

_r = workflow_runs.c
_w = workflows.c


class EndedRun(NamedTuple):
    """A watched run that has ended and has not been looked at."""

    id: str
    namespace: str
    workflow_id: str
    schedule_id: str | None
    status: str
    trigger: str
    logical_date: datetime
    finished_at: datetime


_COLUMNS = [_r[name] for name in EndedRun._fields]
_is_new = (flag(_r.is_watched), _r.reviewed_at.is_(None), _r.finished_at.is_not(None))
_UNREVIEWED = select(*_COLUMNS).where(*_is_new).order_by(_r.finished_at).limit(bindparam("at_most", type_=Integer()))


async def find_unreviewed(transaction: Transaction, limit: int) -> list[EndedRun]:
    """Watched runs that have ended and wait for their review, the oldest first."""
    return [EndedRun(*row) for row in await transaction.rows(_UNREVIEWED, {"at_most": limit})]


_reviewed = batch("reviewed_runs", id=Id())
_MARK = (
    update(workflow_runs)
    .values(reviewed_at=NOW)
    .where(
        _r.id == _reviewed.c.id,
        among(_r.id, select(_reviewed.c.id).scalar_subquery()),
        _r.reviewed_at.is_(None),
        _r.finished_at.is_not(None),
    )
    .returning(_r.id)
)


async def mark_reviewed(transaction: Transaction, run_ids: Sequence[str]) -> set[str]:
    """Marks runs as looked at; those that another node has marked, or that go on again, are left out."""
    parameters = {"reviewed_runs": encode_rows([(run_id,) for run_id in run_ids])}
    return {row.id for row in await transaction.rows(_MARK, parameters)}


_since = bindparam("since", type_=Instant())
_most = bindparam("at_most", type_=Integer())
_workflow = bindparam("workflow", type_=Id())
_has_outcome = or_(_r.status == constant("success"), _r.status == constant("failed"))
_counts = (_has_outcome, _r.created_at > _since)
_OF_SCHEDULE = (
    select(_r.id, _r.status)
    .where(_r.schedule_id == bindparam("schedule", type_=Id()), *_counts)
    .order_by(_r.logical_date.desc())
    .limit(_most)
)
_OF_WORKFLOW = (
    select(_r.id, _r.status)
    # As a range, and in the order of one index: another one would lead through the runs of all workflows.
    .where(_r.workflow_id >= _workflow, _r.workflow_id <= _workflow, *_counts)
    .order_by(_r.workflow_id.desc(), _r.id.desc())
    .limit(_most)
)


async def read_latest_of_schedule(
    transaction: Transaction, schedule_id: str, since: datetime | None, count: int
) -> list[tuple[str, str]]:
    """(id, status) of the newest ended runs of a schedule that were made since then, cancelled ones left out."""
    parameters = {"schedule": schedule_id, "since": since or EPOCH, "at_most": count}
    return [(row.id, row.status) for row in await transaction.rows(_OF_SCHEDULE, parameters)]


async def read_latest_of_workflow(
    transaction: Transaction, workflow_id: str, since: datetime | None, count: int
) -> list[tuple[str, str]]:
    """The same for a workflow, however its runs came about."""
    parameters = {"workflow": workflow_id, "since": since or EPOCH, "at_most": count}
    return [(row.id, row.status) for row in await transaction.rows(_OF_WORKFLOW, parameters)]


_wanted = batch("watching_workflows", id=Id())
_WATCHES = (
    select(_w.id, _w.name, _w.namespace, _w.is_active, _w.resumed_at, workflow_versions.c.spec)
    .join(workflow_versions, workflow_versions.c.id == _w.current_version_id)
    .where(within(_w.id, select(_wanted.c.id).scalar_subquery()))
)


async def read_watches(transaction: Transaction, workflow_ids: Sequence[str]) -> Sequence[Any]:
    """What these workflows ask for when runs end: their current definitions."""
    parameters = {"watching_workflows": encode_rows([(item,) for item in sorted(set(workflow_ids))])}
    return await transaction.rows(_WATCHES, parameters)
