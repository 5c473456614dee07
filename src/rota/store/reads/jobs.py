"""Jobs and their runs, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, case, func, select

from rota.domain.states import RUN_FINAL, RUN_OPEN
from rota.store.database import Transaction
from rota.store.dialect import Id
from rota.store.reads.pages import Listing, PageRequest, read_page
from rota.store.tables import schedules, task_runs, workflow_runs, workflow_versions, workflows
from rota.store.tables_service import workers

_w = workflows.c
_r = workflow_runs.c
_t = task_runs.c
_s = schedules.c

_run_status = case(
    (_r.status.in_(sorted(RUN_FINAL)), _r.status),
    (_t.attempt > 0, "running"),
    else_="pending",
)
# A job is what its last run is; one that will not run again without having been run is cancelled.
_JOB_STATUS: ColumnElement[str] = case(
    (_r.status.in_(sorted(RUN_OPEN)), _run_status),
    (_w.is_active.is_(False), "cancelled"),
    else_=func.coalesce(_r.status, "pending"),
)
_last = workflow_runs.alias("last")
_last_run = (
    select(_last.c.id)
    .where(_last.c.workflow_id == _w.id)
    .order_by(_last.c.id.desc())
    .limit(1)
    .correlate(workflows)
    .scalar_subquery()
)
_JOBS = (
    select(
        _w.id,
        _w.namespace,
        _w.name,
        _w.tags,
        _w.is_active,
        _w.version,
        _w.created_at,
        _w.updated_at,
        _JOB_STATUS.label("status"),
        workflow_versions.c.spec.label("definition"),
        _s.next_due_at.label("next_run_at"),
        _r.id.label("run_id"),
        _run_status.label("run_status"),
        _r.trigger,
        _r.logical_date,
        _r.created_at.label("run_created_at"),
        _t.id.label("task_run_id"),
        _t.attempt,
        _t.exit_code,
        _t.error_type,
        _t.error,
        _t.worker_id,
        _t.started_at,
        _t.finished_at,
    )
    .select_from(workflows)
    .select_from(
        workflows.join(workflow_versions, workflow_versions.c.id == _w.current_version_id)
        .outerjoin(schedules, and_(_s.workflow_id == _w.id, _s.position == 0))
        .outerjoin(workflow_runs, _r.id == _last_run)
        .outerjoin(task_runs, _t.run_id == _r.id)
    )
    .where(_w.kind == "job")
)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are wanted."""

    namespace: str
    statuses: Sequence[str] = ()
    text: str | None = None


async def list_jobs(transaction: Transaction, wanted: JobFilter, page: PageRequest) -> Listing:
    """Jobs with their last run, the newest first."""
    statement = _JOBS.where(_w.namespace == wanted.namespace)
    if wanted.statuses:
        statement = statement.where(_JOB_STATUS.in_(wanted.statuses))
    if wanted.text is not None:
        statement = statement.where(_w.name.icontains(wanted.text, autoescape=True))
    return await read_page(transaction, statement, _w.id, page)


_JOB = _JOBS.where(_w.id == bindparam("wanted_id", type_=Id()), _w.namespace == bindparam("wanted_namespace"))


async def read_job(transaction: Transaction, namespace: str, job_id: str) -> Any | None:
    """A job with its last run."""
    return await transaction.row(_JOB, {"wanted_id": job_id, "wanted_namespace": namespace})


_JOB_RUNS: Select[Any] = select(
    _r.id,
    _r.workflow_id.label("job_id"),
    _run_status.label("status"),
    _r.trigger,
    _r.logical_date,
    _r.created_at,
    _t.id.label("task_run_id"),
    _t.attempt,
    _t.exit_code,
    _t.error_type,
    _t.error,
    _t.usage,
    _t.is_unconfirmed,
    _t.worker_id,
    workers.c.name.label("worker"),
    _t.started_at,
    _t.finished_at,
).select_from(workflow_runs.join(task_runs, _t.run_id == _r.id).outerjoin(workers, workers.c.id == _t.worker_id))


async def list_job_runs(transaction: Transaction, job_id: str, statuses: Sequence[str], page: PageRequest) -> Listing:
    """The runs of a job, the newest first."""
    statement = _JOB_RUNS.where(_r.workflow_id == job_id)
    if statuses:
        statement = statement.where(_run_status.in_(statuses))
    return await read_page(transaction, statement, _r.id, page)


_OPEN_RUNS = (
    select(_r.id)
    .where(_r.workflow_id == bindparam("owner", type_=Id()), _r.status.in_(sorted(RUN_OPEN)))
    .order_by(_r.id)
)


async def find_open_runs(transaction: Transaction, workflow_id: str) -> list[str]:
    """The runs that have not ended."""
    return [row.id for row in await transaction.rows(_OPEN_RUNS, {"owner": workflow_id})]
