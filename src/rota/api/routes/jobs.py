"""Jobs, in the words of both older dialects."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota.api import views
from rota.api.access import require_namespace
from rota.api.answers import PageQuery, answer, answer_page, read_states
from rota.api.context import Api, Context, Namespace
from rota.api.lookup import require_job, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.routes.runs import StatusQuery
from rota.api.schemas.base import Page
from rota.api.schemas.definitions import JobDefinition
from rota.api.schemas.jobs import CreatedJob, Job, JobExecution, JobStatus
from rota.api.schemas.runs import CancelBody
from rota.domain.access import Permission
from rota.domain.errors import Conflict
from rota.domain.job import parse_job
from rota.domain.schedule import SCHEDULE_FIELDS
from rota.domain.states import RunState, name_state
from rota.engine.submit import RunRequest
from rota.store.database import Transaction
from rota.store.reads import jobs, runs
from rota.store.reads.jobs import JobFilter
from rota.store.reads.pages import Listing

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=LimitedRoute)


@router.post("", status_code=201, response_model=CreatedJob)
@needs(Permission.EDIT)
async def create_job(api: Context, namespace: Namespace, data: JobDefinition) -> Response:
    """Saves a job: to be run now, once at a time, or on a schedule."""
    # Only what has a time is checked against the clock.
    spec = parse_job(data, now=await api.read_time() if SCHEDULE_FIELDS.intersection(data) else None)
    if data.get("namespace") is None:
        spec = replace(spec, namespace=namespace)
    require_namespace(spec.namespace)
    defined = await api.engine.create_workflow(spec)
    run_id = None if spec.schedules else await _start(api, defined.id)
    created = CreatedJob(
        id=defined.id, job_id=defined.id, name=spec.name or defined.id, status="pending", run_id=run_id
    )
    return answer(created, 201, {"Location": f"/api/v1/jobs/{defined.id}"})


async def _start(api: Api, job_id: str) -> str | None:
    """Runs a new job; one that cannot be run is not left behind."""
    try:
        return (await api.engine.submit(RunRequest(job_id))).id
    except BaseException:
        await api.engine.delete_workflow(job_id)
        raise


@router.get("", response_model=Page[Job])
@needs(Permission.VIEW)
async def list_jobs(
    api: Context,
    namespace: Namespace,
    page: PageQuery,
    status: StatusQuery = None,
    q: Annotated[str | None, Query(max_length=200, description="A part of the name.")] = None,
) -> Response:
    """Lists jobs with their last run."""
    wanted = JobFilter(namespace, read_states(status or [], list(RunState), name_state), q)
    listing = await api.database.read(lambda tx: jobs.list_jobs(tx, wanted, page))
    return answer_page(Page[Job], listing, views.make_job)


@router.get("/{job_id}", response_model=Job)
@needs(Permission.VIEW)
async def read_job(api: Context, namespace: Namespace, job_id: str) -> Response:
    """One job with its last run."""
    return answer(views.make_job(await require_job(api, namespace, job_id)))


@router.delete("/{job_id}", status_code=204)
@needs(Permission.EDIT)
async def delete_job(api: Context, namespace: Namespace, job_id: str) -> Response:
    """Deletes a job with its past; refused while it runs."""
    row = await require_job(api, namespace, job_id)
    await api.engine.delete_workflow(row.id)
    return Response(status_code=204)


@router.get("/{job_id}/status", response_model=JobStatus)
@needs(Permission.VIEW)
async def read_job_status(api: Context, namespace: Namespace, job_id: str) -> Response:
    """How a job's last run stands."""
    return answer(views.make_job_status(await require_job(api, namespace, job_id)))


@router.get("/{job_id}/runs", response_model=Page[JobExecution])
@router.get("/{job_id}/executions", response_model=Page[JobExecution])
@needs(Permission.VIEW)
async def list_job_runs(
    api: Context, namespace: Namespace, job_id: str, page: PageQuery, status: StatusQuery = None
) -> Response:
    """The runs of a job, with every attempt."""
    states = read_states(status or [], list(RunState), name_state)
    job = await require_job(api, namespace, job_id)

    async def read(transaction: Transaction) -> tuple[Listing, dict[str, list[Any]]]:
        listing = await jobs.list_job_runs(transaction, job.id, states, page)
        earlier: dict[str, list[Any]] = defaultdict(list)
        for row in await runs.read_attempts(transaction, [row.task_run_id for row in listing.rows]):
            earlier[row.task_run_id].append(row)
        return listing, earlier

    listing, earlier = await api.database.read(read)
    return answer_page(Page[JobExecution], listing, lambda row: views.make_execution(row, earlier))


@router.post("/{job_id}/cancel", response_model=Job)
@needs(Permission.OPERATE)
async def cancel_job(api: Context, namespace: Namespace, job_id: str, body: CancelBody | None = None) -> Response:
    """Stops what runs of a job, and its schedule."""
    row = await require_job(api, namespace, job_id)
    open_runs = await api.database.read(lambda tx: jobs.find_open_runs(tx, row.id))
    if not open_runs and row.next_run_at is None and row.is_active:
        raise Conflict(f"job {row.id} is {row.status} already: there is nothing left to cancel")
    if row.next_run_at is not None:
        # First the schedule, so that nothing new starts behind our back.
        await api.engine.set_active(await require_workflow(api, namespace, row.id), is_active=False)
        open_runs = await api.database.read(lambda tx: jobs.find_open_runs(tx, row.id))
    for run_id in open_runs:
        await api.engine.cancel_run(run_id, body.reason if body else "")
    return answer(views.make_job(await require_job(api, namespace, row.id)))
