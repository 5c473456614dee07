"""Workflows: saving, finding, pausing, running."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from rota.api import definition, views
from rota.api.answers import PageQuery, answer, answer_page, read_if_match
from rota.api.context import Api, Context, Namespace
from rota.api.idempotency import OnlyOnce
from rota.api.lookup import require_run, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import FieldFault, Page
from rota.api.schemas.definitions import (
    Applied,
    Validation,
    Workflow,
    WorkflowChange,
    WorkflowDefinition,
    WorkflowDetail,
)
from rota.api.schemas.runs import Run, TriggerBody
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec_parse import parse_workflow
from rota.domain.spec_write import workflow_to_dict
from rota.engine.submit import RunRequest
from rota.store import schedules
from rota.store.definitions import WorkflowRow
from rota.store.reads import workflows
from rota.store.reads.workflows import WorkflowFilter

router = APIRouter(tags=["workflows"], route_class=LimitedRoute)


@router.post("/workflows", status_code=201, response_model=Workflow)
@needs(Permission.EDIT)
async def create_workflow(api: Context, namespace: Namespace, data: WorkflowDefinition, once: OnlyOnce) -> Response:
    """Saves a new workflow, with its tasks or without any yet."""

    async def create() -> Response:
        spec = definition.parse(data, namespace, now=await api.read_time())
        defined = await api.engine.create_workflow(spec)
        return await _answer_one(api, defined.id, status=201)

    return await once(create)


@router.get("/workflows", response_model=Page[Workflow])
@needs(Permission.VIEW)
async def list_workflows(
    api: Context,
    namespace: Namespace,
    page: PageQuery,
    is_active: Annotated[bool | None, Query()] = None,
    tag: Annotated[str | None, Query(max_length=200)] = None,
    q: Annotated[str | None, Query(max_length=200, description="A part of the name or of the description.")] = None,
) -> Response:
    """Lists workflows."""
    wanted = WorkflowFilter(namespace, is_active, tag, q)
    listing = await api.database.read(lambda tx: workflows.list_workflows(tx, wanted, page))
    return answer_page(Page[Workflow], listing, views.make_workflow)


@router.post("/workflows/validate", response_model=Validation)
@needs(Permission.VIEW)
async def validate_workflow(api: Context, data: WorkflowDefinition) -> Response:
    """Says whether a definition would be accepted, with everything that is wrong with it. Saves nothing."""
    try:
        spec = parse_workflow(data, now=await api.read_time())
    except InvalidInput as error:
        faults = [FieldFault(field=fault.field, reason=fault.reason) for fault in error.errors]
        return answer(Validation(is_valid=False, errors=faults, definition=None))
    return answer(Validation(is_valid=True, errors=[], definition=workflow_to_dict(spec)))


@router.get("/workflows/{workflow}", response_model=WorkflowDetail)
@needs(Permission.VIEW)
async def read_workflow(api: Context, namespace: Namespace, workflow: str) -> Response:
    """One workflow by its id or name, with its definition and schedules."""
    found = await require_workflow(api, namespace, workflow)
    row = await api.database.read(lambda tx: workflows.read_workflow(tx, found.id))
    rules = await api.database.read(lambda tx: schedules.read_schedules(tx, found.id))
    detail = WorkflowDetail(
        **views.describe_workflow(row),
        definition=await definition.read_current(api, found),
        schedules=[views.make_schedule(rule) for rule in rules],
    )
    return answer(detail, headers={"ETag": f'"{found.version}"'})


@router.put("/workflows/{workflow}", response_model=Applied, responses={201: {"model": Applied}})
@needs(Permission.EDIT)
async def apply_workflow(
    api: Context, namespace: Namespace, workflow: str, data: WorkflowDefinition, request: Request
) -> Response:
    """Makes the workflow of this name be as sent. A version is made only when the content changed."""
    named = {"name": workflow, **data}
    if named["name"] != workflow:
        reason = f"is not the name in the address ({workflow[:200]}): a workflow keeps its name"
        raise InvalidInput.of([FieldError("name", reason)])
    spec = definition.parse(named, namespace, now=await api.read_time())
    defined = await api.engine.apply_workflow(spec, expected_version=read_if_match(request))
    row = await api.database.read(lambda tx: workflows.read_workflow(tx, defined.id))
    applied = Applied(**views.describe_workflow(row), is_new=defined.is_new, is_changed=defined.is_changed)
    return answer(applied, 201 if defined.is_new else 200, {"ETag": f'"{applied.version}"'})


@router.patch("/workflows/{workflow}", response_model=Workflow)
@needs(Permission.EDIT)
async def change_workflow(
    api: Context, namespace: Namespace, workflow: str, data: WorkflowChange, request: Request
) -> Response:
    """Replaces the fields of the definition that are sent."""
    found = await require_workflow(api, namespace, workflow)
    expected = read_if_match(request)
    if set(data) == {"is_active"} and isinstance(data["is_active"], bool) and expected is None:
        await api.engine.set_active(found, is_active=data["is_active"])
    else:
        await definition.change(api, found, data, expected_version=expected)
    return await _answer_one(api, found.id)


@router.delete("/workflows/{workflow}", status_code=204)
@needs(Permission.EDIT)
async def delete_workflow(api: Context, namespace: Namespace, workflow: str) -> Response:
    """Deletes a workflow with its past; refused while runs of it are open."""
    found = await require_workflow(api, namespace, workflow)
    await api.engine.delete_workflow(found.id)
    return Response(status_code=204)


@router.post("/workflows/{workflow}/trigger", status_code=201, response_model=Run)
@needs(Permission.OPERATE)
async def trigger_workflow(
    api: Context, namespace: Namespace, workflow: str, once: OnlyOnce, body: TriggerBody | None = None
) -> Response:
    """Starts a run of the current version."""
    return await once(lambda: _trigger(api, namespace, workflow, body or TriggerBody()))


async def _trigger(api: Api, namespace: str, workflow: str, body: TriggerBody) -> Response:
    found = await require_workflow(api, namespace, workflow)
    logical_at = body.logical_date
    if logical_at is not None and logical_at.tzinfo is None:
        raise InvalidInput.of([FieldError("logical_date", "needs an offset, such as 2030-01-31T08:00:00Z")])
    submitted = await api.engine.submit(
        RunRequest(
            found.id,
            params=body.params,
            labels=body.labels,
            logical_at=None if logical_at is None else logical_at.astimezone(UTC),
            note=body.note,
        )
    )
    run = views.make_run(await require_run(api, namespace, str(submitted.id)))
    return answer(run, 201, {"Location": f"/api/v1/workflow-runs/{run.id}"})


@router.post("/workflows/{workflow}/pause", response_model=Workflow)
@needs(Permission.OPERATE)
async def pause_workflow(api: Context, namespace: Namespace, workflow: str) -> Response:
    """Stops the workflow's schedules; runs that are open go on."""
    return await _set_active(api, await require_workflow(api, namespace, workflow), is_active=False)


@router.post("/workflows/{workflow}/unpause", response_model=Workflow)
@needs(Permission.OPERATE)
async def unpause_workflow(api: Context, namespace: Namespace, workflow: str) -> Response:
    """Lets the workflow's schedules go on from now."""
    return await _set_active(api, await require_workflow(api, namespace, workflow), is_active=True)


async def _set_active(api: Api, found: WorkflowRow, *, is_active: bool) -> Response:
    await api.engine.set_active(found, is_active=is_active)
    return await _answer_one(api, found.id)


async def _answer_one(api: Api, workflow_id: str, *, status: int = 200) -> Response:
    row: Any = await api.database.read(lambda tx: workflows.read_workflow(tx, workflow_id))
    headers = {"ETag": f'"{row.version}"'}
    if status == 201:
        headers["Location"] = f"/api/v1/workflows/{workflow_id}"
    return answer(views.make_workflow(row), status, headers)
