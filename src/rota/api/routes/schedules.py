"""Schedules: finding them, pausing one, what was decided about their ticks, and previews of rules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota.api import definition, views
from rota.api.answers import PageQuery, answer, answer_page, read_sequence
from rota.api.context import Api, Context, Namespace
from rota.api.lookup import read_id, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import Page
from rota.api.schemas.runs import Explanation
from rota.api.schemas.schedules import (
    Decision,
    ListedSchedule,
    Preview,
    PreviewBody,
    PreviewFire,
    ScheduleChange,
    ScheduleQuestions,
    Schedules,
)
from rota.domain.access import Permission
from rota.domain.errors import NotFound
from rota.domain.schedule import parse_schedule
from rota.domain.schedule_plan import PreviewFire as FireFacts
from rota.domain.schedule_plan import preview
from rota.domain.schedule_preview import COUNT_MOST, preview_rule
from rota.store import schedules as rows_of
from rota.store.reads import schedules
from rota.store.reads.schedules import ScheduleFilter
from rota.store.schedules import ScheduleRow

router = APIRouter(tags=["schedules"], route_class=LimitedRoute)


@router.get("/schedules", response_model=Page[ListedSchedule])
@needs(Permission.VIEW)
async def list_schedules(
    api: Context, namespace: Namespace, page: PageQuery, asked: Annotated[ScheduleQuestions, Query()]
) -> Response:
    """Lists schedules; by `state` those that are upcoming, late, paused or finished, or have missed ticks."""
    found = None if asked.workflow is None else await require_workflow(api, namespace, asked.workflow)
    wanted = ScheduleFilter(namespace, asked.state, found.id if found else None, asked.within_seconds)
    listing = await api.database.read(lambda tx: schedules.list_schedules(tx, wanted, page))
    return answer_page(Page[ListedSchedule], listing, views.make_listed_schedule)


@router.post("/schedules/preview", response_model=Preview)
@needs(Permission.VIEW)
async def preview_schedule(api: Context, data: PreviewBody) -> Response:
    """The next fires of a rule, with what changes of the clock do to them. Saves nothing."""
    fires = preview_rule(data, now=await api.read_time())
    return answer(Preview(items=[PreviewFire.model_validate(fire) for fire in fires]))


@router.get("/workflows/{workflow}/preview", response_model=Preview)
@needs(Permission.VIEW)
async def preview_workflow(
    api: Context, namespace: Namespace, workflow: str, count: Annotated[int, Query(ge=1, le=COUNT_MOST)] = 5
) -> Response:
    """The next fires of all schedules of a workflow, as if it were not paused."""
    found = await require_workflow(api, namespace, workflow)
    rules = await api.database.read(lambda tx: rows_of.read_schedules(tx, found.id))
    now = await api.read_time()
    fires = [fire for rule in rules for fire in _preview_row(rule, now, count)]
    first = sorted(fires, key=lambda fire: fire.at)[:count]
    return answer(Preview(items=[PreviewFire.model_validate(fire) for fire in first]))


def _preview_row(row: ScheduleRow, now: datetime, count: int) -> Sequence[FireFacts]:
    # What has been decided is not ahead, whatever the clock says.
    start = max(now, row.cursor_at) + timedelta(microseconds=1)
    spec = parse_schedule(row.spec, now=None, seed=row.id)
    return preview(spec, seed=row.id, anchor=row.anchor_at, start=start, count=count)


@router.get("/schedules/{schedule_id}", response_model=ListedSchedule)
@needs(Permission.VIEW)
async def read_schedule(api: Context, namespace: Namespace, schedule_id: str) -> Response:
    """One schedule."""
    return answer(views.make_listed_schedule(await _require(api, namespace, schedule_id)))


@router.patch("/schedules/{schedule_id}", response_model=ListedSchedule)
@needs(Permission.OPERATE)
async def change_schedule(api: Context, namespace: Namespace, schedule_id: str, body: ScheduleChange) -> Response:
    """Pauses or unpauses one schedule; it goes on from now."""
    row = await _require(api, namespace, schedule_id)
    await api.engine.set_schedule_active(row.id, is_active=body.is_active, reason=body.reason)
    return answer(views.make_listed_schedule(await _require(api, namespace, row.id)))


@router.delete("/schedules/{schedule_id}", status_code=204)
@needs(Permission.EDIT)
async def delete_schedule(api: Context, namespace: Namespace, schedule_id: str) -> Response:
    """Takes a schedule out of its workflow's definition; its runs stay."""
    row = await _require(api, namespace, schedule_id)
    await definition.remove_schedule(api, await require_workflow(api, namespace, row.workflow_id), row.id)
    return Response(status_code=204)


@router.get("/schedules/{schedule_id}/decisions", response_model=Page[Decision])
@needs(Permission.VIEW)
async def list_decisions(
    api: Context,
    namespace: Namespace,
    schedule_id: str,
    limit: Annotated[int, Query(ge=1, le=500)] = 20,
    cursor: Annotated[str | None, Query(max_length=20, description="`next_cursor` of the page before.")] = None,
) -> Response:
    """What was decided about its ticks, the newest first: fired, buffered, skipped, missed, and why."""
    row = await _require(api, namespace, schedule_id)
    before = read_sequence(cursor)
    found = await api.database.read(lambda tx: schedules.read_decisions(tx, row.id, before, limit + 1))
    items = [Decision.model_validate(item) for item in found[:limit]]
    more = str(items[-1].seq) if len(found) > limit else None
    return answer(Page[Decision](items=items, total=None, next_cursor=more))


@router.get("/schedules/{schedule_id}/explain", response_model=Explanation)
@needs(Permission.VIEW)
async def explain_schedule(api: Context, namespace: Namespace, schedule_id: str) -> Response:
    """Why a schedule does not fire."""
    row = await _require(api, namespace, schedule_id)
    return answer(views.make_explanation(await api.engine.explain_schedule(row.id)))


@router.get("/workflows/{workflow}/schedules", response_model=Schedules)
@needs(Permission.VIEW)
async def list_workflow_schedules(api: Context, namespace: Namespace, workflow: str) -> Response:
    """The schedules of a workflow."""
    found = await require_workflow(api, namespace, workflow)
    rows = await api.database.read(lambda tx: rows_of.read_schedules(tx, found.id))
    return answer(Schedules(items=[views.make_schedule(row) for row in rows], total=len(rows)))


async def _require(api: Api, namespace: str, schedule_id: str) -> Any:
    wanted = read_id(schedule_id, "schedule")
    row = await api.database.read(lambda tx: schedules.read_schedule(tx, namespace, wanted))
    if row is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    return row
