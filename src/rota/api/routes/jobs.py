"""Jobs, in the words of both older dialects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota.api import views
from rota.api.access import require_namespace
from rota.api.answers import JSON, PageQuery, answer, answer_page, read_states
from rota.api.context import Context, Namespace
from rota.api.idempotency import OnlyOnce
from rota.api.lookup import require_job, require_workflow
from rota.api.permissions import needs
from rota.api.quick import encode_created, encode_created_one
from rota.api.requests import LimitedRoute
from rota.api.routes.runs import StatusQuery
from rota.api.schemas import jobs as shapes
from rota.api.schemas.base import Page
from rota.api.schemas.definitions import JobDefinition, JobDefinitions
from rota.api.schemas.jobs import Job, JobExecution, JobStatus
from rota.api.schemas.runs import CancelBody
from rota.domain.access import Permission
from rota.domain.errors import Conflict, FieldError, InvalidInput
from rota.domain.job import parse_job
from rota.domain.job_bulk import MOST_JOBS, parse_jobs
from rota.domain.schedule import SCHEDULE_FIELDS
from rota.domain.spec import WorkflowSpec
from rota.domain.states import RunState, name_state
from rota.store.database import Transaction
from rota.store.reads import jobs, runs
from rota.store.reads.jobs import JobFilter
from rota.store.reads.pages import Listing

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=LimitedRoute)


@router.post("", status_code=201, response_model=shapes.CreatedJob)
@needs(Permission.EDIT)
async def create_job(api: Context, namespace: Namespace, data: JobDefinition, once: OnlyOnce) -> Response:
    """Saves a job: to be run now, once at a time, or on a schedule."""

    async def create() -> Response:
        # Only what has a time is checked against the clock.
        spec = parse_job(data, now=await api.read_time() if SCHEDULE_FIELDS.intersection(data) else None)
        try:
            created = await api.engine.create_job(_place(spec, data, namespace))
        except InvalidInput as error:
            raise _tell_single(error) from error
        return Response(encode_created_one(created), 201, {"Location": f"/api/v1/jobs/{created.id}"}, JSON)

    return await once(create)


@router.post("/bulk", status_code=201, response_model=shapes.CreatedJobs)
@needs(Permission.EDIT)
async def create_jobs(api: Context, namespace: Namespace, data: JobDefinitions, once: OnlyOnce) -> Response:
    """Saves up to 1,000 jobs, all or none."""

    async def create() -> Response:
        items = _read_items(data)
        batch = parse_jobs(items, now=await api.read_time())
        if batch.errors:
            raise InvalidInput.of(batch.errors)
        specs = [_place(spec, item, namespace) for spec, item in zip(batch.specs, items, strict=True)]
        created = await api.engine.create_jobs(specs)
        return Response(encode_created(created), 201, media_type=JSON)

    return await once(create)


def _read_items(data: Mapping[str, Any]) -> list[Any]:
    unknown = sorted(set(data) - {"jobs"})
    if unknown:
        raise InvalidInput.of([FieldError(name[:100], "there is no such field") for name in unknown])
    items = data.get("jobs")
    if not isinstance(items, list) or not 0 < len(items) <= MOST_JOBS:
        raise InvalidInput.of([FieldError("jobs", f"expected a list of 1 to {MOST_JOBS:,} jobs")])
    return items


def _place(spec: WorkflowSpec, data: Mapping[str, Any], namespace: str) -> WorkflowSpec:
    """The job in the caller's namespace, unless it names one."""
    placed = spec if data.get("namespace") is not None else replace(spec, namespace=namespace)
    require_namespace(placed.namespace)
    return placed


def _tell_single(error: InvalidInput) -> InvalidInput:
    """The engine names faults by the place of their job, and here is only one."""
    # A template that cannot be read has no field.
    places = {"jobs[0]": "command"}
    return InvalidInput.of(
        [
            FieldError(places.get(fault.field) or fault.field.removeprefix("jobs[0]."), fault.reason)
            for fault in error.errors
        ]
    )


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
