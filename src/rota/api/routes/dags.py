"""Workflows and runs in the words of DAGs, for clients that know these."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota.api import definition
from rota.api.answers import PageQuery, answer, answer_page, read_states
from rota.api.context import Api, Context, Namespace
from rota.api.lookup import read_id, require_run, require_task_run, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import Page
from rota.api.schemas.dags import Dag, DagBody, DagRun, TaskInstance
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput
from rota.domain.states import RunState, TaskState, name_state
from rota.store import schedules
from rota.store.definitions import WorkflowRow
from rota.store.reads import runs, workflows
from rota.store.reads.runs import RunFilter
from rota.store.reads.workflows import WorkflowFilter

router = APIRouter(tags=["dags"], route_class=LimitedRoute)
WAITING = "queued"
StateQuery = Annotated[list[str] | None, Query(description="May be repeated; `queued` is whatever has not started.")]
DagQuery = Annotated[str | None, Query(max_length=200, description="The DAG's id or name.")]


@router.get("/dags", response_model=Page[Dag])
@needs(Permission.VIEW)
async def list_dags(
    api: Context,
    namespace: Namespace,
    page: PageQuery,
    is_paused: Annotated[bool | None, Query()] = None,
    tag: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Lists DAGs."""
    wanted = WorkflowFilter(namespace, None if is_paused is None else not is_paused, tag)
    listing = await api.database.read(lambda tx: workflows.list_workflows(tx, wanted, page))
    return answer_page(Page[Dag], listing, _make_dag)


@router.post("/dags", status_code=201, response_model=Dag)
@needs(Permission.EDIT)
async def create_dag(api: Context, namespace: Namespace, body: DagBody) -> Response:
    """Saves a new DAG, with its tasks or without any yet."""
    spec = definition.parse(_write(body), namespace, now=await api.read_time())
    defined = await api.engine.create_workflow(spec)
    return await _answer_dag(api, defined.id, 201)


@router.get("/dags/{dag_id}", response_model=Dag)
@needs(Permission.VIEW)
async def read_dag(api: Context, namespace: Namespace, dag_id: str) -> Response:
    """One DAG by its id or name."""
    return await _answer_dag(api, (await require_workflow(api, namespace, dag_id)).id)


@router.put("/dags/{dag_id}", response_model=Dag)
@needs(Permission.EDIT)
async def update_dag(api: Context, namespace: Namespace, dag_id: str, body: DagBody) -> Response:
    """Changes what is sent of a DAG."""
    found = await require_workflow(api, namespace, dag_id)
    fields = _write(body)
    if fields.pop("name", found.name) != found.name:
        raise InvalidInput.of([FieldError("name", f"a DAG keeps its name, which is {found.name}")])
    if fields:
        await definition.change(api, found, await _keep_dates(api, found, fields))
    return await _answer_dag(api, found.id)


@router.delete("/dags/{dag_id}", status_code=204)
@needs(Permission.EDIT)
async def delete_dag(api: Context, namespace: Namespace, dag_id: str) -> Response:
    """Deletes a DAG with its past; refused while runs of it are open."""
    await api.engine.delete_workflow((await require_workflow(api, namespace, dag_id)).id)
    return Response(status_code=204)


@router.post("/dags/{dag_id}/pause", response_model=Dag)
@needs(Permission.OPERATE)
async def pause_dag(api: Context, namespace: Namespace, dag_id: str) -> Response:
    """Stops a DAG's schedule; runs that are open go on."""
    found = await require_workflow(api, namespace, dag_id)
    await api.engine.set_active(found, is_active=False)
    return await _answer_dag(api, found.id)


@router.post("/dags/{dag_id}/unpause", response_model=Dag)
@needs(Permission.OPERATE)
async def unpause_dag(api: Context, namespace: Namespace, dag_id: str) -> Response:
    """Lets a DAG's schedule go on from now."""
    found = await require_workflow(api, namespace, dag_id)
    await api.engine.set_active(found, is_active=True)
    return await _answer_dag(api, found.id)


@router.get("/dag-runs", response_model=Page[DagRun])
@needs(Permission.VIEW)
async def list_dag_runs(
    api: Context, namespace: Namespace, page: PageQuery, state: StateQuery = None, dag_id: DagQuery = None
) -> Response:
    """Lists the runs of DAGs."""
    states = _read_states(state, RunState, (RunState.PENDING,))
    workflow_id = None if dag_id is None else (await require_workflow(api, namespace, dag_id)).id
    listing = await api.database.read(lambda tx: runs.list_runs(tx, RunFilter(namespace, states, workflow_id), page))
    return answer_page(Page[DagRun], listing, _make_run)


@router.get("/dag-runs/{run_id}", response_model=DagRun)
@needs(Permission.VIEW)
async def read_dag_run(api: Context, namespace: Namespace, run_id: str) -> Response:
    """One run of a DAG."""
    return answer(_make_run(await require_run(api, namespace, run_id)))


@router.get("/task-instances", response_model=Page[TaskInstance])
@needs(Permission.VIEW)
async def list_task_instances(
    api: Context,
    namespace: Namespace,
    page: PageQuery,
    state: StateQuery = None,
    dag_run_id: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Lists the task instances of DAG runs."""
    states = _read_states(state, TaskState, (TaskState.PENDING, TaskState.QUEUED))
    run_id = None if dag_run_id is None else read_id(dag_run_id, "DAG run")
    wanted = RunFilter(namespace, states, run_id=run_id)
    listing = await api.database.read(lambda tx: runs.list_task_runs(tx, wanted, page))
    return answer_page(Page[TaskInstance], listing, _make_instance)


@router.get("/task-instances/{task_run_id}", response_model=TaskInstance)
@needs(Permission.VIEW)
async def read_task_instance(api: Context, namespace: Namespace, task_run_id: str) -> Response:
    """One task instance."""
    return answer(_make_instance(await require_task_run(api, namespace, task_run_id)))


def _write(body: DagBody) -> dict[str, Any]:
    """What was sent, in the words of a workflow's definition."""
    sent = body.model_dump(exclude_unset=True)
    renamed = {"schedule": "schedule_cron", "start_date": "start_at", "end_date": "end_at"}
    fields = {renamed.get(name, name): value for name, value in sent.items()}
    if "is_paused" in fields:
        fields["is_active"] = not fields.pop("is_paused")
    dates = {name: fields[name] for name in ("start_at", "end_at") if isinstance(fields.get(name), datetime)}
    fields |= {name: moment.isoformat() for name, moment in dates.items()}
    # Dates without a schedule bound nothing.
    if not fields.get("schedule_cron") and "schedule_cron" in fields:
        fields = {name: value for name, value in fields.items() if name not in ("start_at", "end_at")}
    return fields


async def _keep_dates(api: Api, found: WorkflowRow, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with what is said already of the schedule where only a part of it is to change."""
    names = ("schedule_cron", "start_at", "end_at")
    if not any(name in fields for name in names) or fields.get("schedule_cron", "set") in ("", None):
        return fields
    rules = await api.database.read(lambda tx: schedules.read_schedules(tx, found.id))
    return {**(dict(rules[0].spec) if rules else {}), **fields}


async def _answer_dag(api: Api, workflow_id: str, status: int = 200) -> Response:
    row: Any = await api.database.read(lambda tx: workflows.read_workflow(tx, workflow_id))
    return answer(_make_dag(row), status, {"Location": f"/api/v1/dags/{workflow_id}"} if status == 201 else None)


def _make_dag(row: Any) -> Dag:
    rule = row.schedule or {}
    return Dag(
        id=row.id,
        name=row.name,
        description=row.description,
        schedule=rule.get("schedule_cron", ""),
        start_date=rule.get("start_at"),
        end_date=rule.get("end_at"),
        tags=row.tags,
        is_paused=not row.is_active,
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _make_run(row: Any) -> DagRun:
    return DagRun(
        id=row.id,
        dag_id=row.workflow_id,
        execution_date=row.logical_date,
        state=WAITING if row.status == RunState.PENDING else row.status,
        start_date=row.started_at,
        end_date=row.finished_at,
        external_trigger=row.schedule_id is None,
        created_at=row.created_at,
    )


def _make_instance(row: Any) -> TaskInstance:
    is_over = row.started_at is not None and row.finished_at is not None
    return TaskInstance(
        id=row.id,
        dag_run_id=row.run_id,
        dag_id=row.workflow_id,
        task_id=row.task,
        state=WAITING if row.status == TaskState.PENDING else row.status,
        try_number=row.attempt,
        max_tries=row.retry_count + 1,
        start_date=row.started_at,
        end_date=row.finished_at,
        duration=(row.finished_at - row.started_at).total_seconds() if is_over else None,
        error_message=row.error,
        created_at=row.created_at,
    )


def _read_states(given: Sequence[str] | None, states: Any, waiting: Sequence[str]) -> list[str]:
    """The states that a filter names; one that is `queued` here may be several there."""
    others = [word for word in given or () if name_state(word) != WAITING]
    found = read_states(others, list(states), name_state)
    return [*found, *waiting] if len(others) < len(given or ()) else found
