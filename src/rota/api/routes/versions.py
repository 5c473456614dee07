"""Versions of a workflow: what differs between two, and going back to one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from rota.api import definition, views
from rota.api.answers import answer, read_if_match
from rota.api.context import Api, Context, Namespace
from rota.api.lookup import require_version, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.definitions import Applied
from rota.api.schemas.graphs import RollbackBody, VersionDiff
from rota.domain.access import Permission
from rota.domain.spec_diff import compare_definitions
from rota.store.definitions import WorkflowRow
from rota.store.reads import workflows

router = APIRouter(tags=["workflows"], route_class=LimitedRoute)


@router.get("/workflows/{workflow}/versions/{number}/diff", response_model=VersionDiff)
@needs(Permission.VIEW)
async def diff_versions(
    api: Context,
    namespace: Namespace,
    workflow: str,
    number: int,
    against: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="By default the version before.")] = None,
) -> Response:
    """What a version changed: fields, and tasks that came, went or differ."""
    found = await require_workflow(api, namespace, workflow)
    new = (await require_version(api, found, number)).spec
    base = number - 1 if against is None else against
    diff = compare_definitions(await _read_base(api, found, base), new)
    is_same = not (diff.fields or diff.added or diff.removed or diff.changed or diff.is_reordered)
    facts = {name: getattr(diff, name) for name in ("fields", "added", "removed", "changed", "is_reordered")}
    shape: dict[str, Any] = {"workflow_id": found.id, "against": base, "number": number, "is_same": is_same, **facts}
    return answer(VersionDiff.model_validate(shape, from_attributes=True))


async def _read_base(api: Api, found: WorkflowRow, number: int) -> Any:
    return (await require_version(api, found, number)).spec if number else {}


@router.post("/workflows/{workflow}/rollback", response_model=Applied)
@needs(Permission.EDIT)
async def roll_back(
    api: Context, namespace: Namespace, workflow: str, body: RollbackBody, request: Request
) -> Response:
    """Makes the workflow be what it was in an older version, as a new version. Runs that are open keep theirs."""
    found = await require_workflow(api, namespace, workflow)
    row = await require_version(api, found, body.version)
    defined = await definition.restore(api, found, row.spec, expected_version=read_if_match(request))
    after = await api.database.read(lambda tx: workflows.read_workflow(tx, found.id))
    applied = Applied(**views.describe_workflow(after), is_new=False, is_changed=defined.is_changed)
    return answer(applied, headers={"ETag": f'"{applied.version}"'})
