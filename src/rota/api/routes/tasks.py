"""What belongs to one workflow: its tasks and versions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from rota.api import definition, views
from rota.api.answers import PageQuery, answer, answer_page
from rota.api.context import Api, Context, Namespace
from rota.api.idempotency import OnlyOnce
from rota.api.lookup import require_version, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import Page
from rota.api.schemas.definitions import Task, TaskDefinition, Tasks, Version, VersionDetail
from rota.domain.access import Permission
from rota.domain.errors import NotFound
from rota.store.reads import workflows

router = APIRouter(tags=["workflows"], route_class=LimitedRoute)


@router.get("/workflows/{workflow}/tasks", response_model=Tasks)
@needs(Permission.VIEW)
async def list_tasks(api: Context, namespace: Namespace, workflow: str) -> Response:
    """The tasks of the current version, in the order of the definition."""
    found = await require_workflow(api, namespace, workflow)
    rows = await api.database.read(lambda tx: workflows.read_current_tasks(tx, found.id))
    return answer(Tasks(items=[views.make_task(row) for row in rows], total=len(rows)))


@router.post("/workflows/{workflow}/tasks", status_code=201, response_model=Task)
@needs(Permission.EDIT)
async def add_task(api: Context, namespace: Namespace, workflow: str, data: TaskDefinition, once: OnlyOnce) -> Response:
    """Adds a task, which makes a new version."""
    return await once(lambda: _add_task(api, namespace, workflow, data))


async def _add_task(api: Api, namespace: str, workflow: str, data: dict[str, Any]) -> Response:
    found = await require_workflow(api, namespace, workflow)
    current = await definition.read_current(api, found)
    await definition.change(api, found, {"tasks": [*current.get("tasks", []), data]})
    rows = await api.database.read(lambda tx: workflows.read_current_tasks(tx, found.id))
    added = next((row for row in rows if row.name == data["name"]), None)
    if added is None:
        raise NotFound(f"task {data['name']} was taken away again meanwhile")
    return answer(views.make_task(added), 201)


@router.get("/workflows/{workflow}/versions", response_model=Page[Version])
@needs(Permission.VIEW)
async def list_versions(api: Context, namespace: Namespace, workflow: str, page: PageQuery) -> Response:
    """The versions of a workflow."""
    found = await require_workflow(api, namespace, workflow)
    listing = await api.database.read(lambda tx: workflows.list_versions(tx, found.id, page))
    return answer_page(Page[Version], listing, views.make_version)


@router.get("/workflows/{workflow}/versions/{number}", response_model=VersionDetail)
@needs(Permission.VIEW)
async def read_version(api: Context, namespace: Namespace, workflow: str, number: int) -> Response:
    """One version with its definition."""
    found = await require_workflow(api, namespace, workflow)
    row = await require_version(api, found, number)
    return answer(VersionDetail(**views.make_version(row).model_dump(), definition=row.spec))
