"""Backfills: runs of past ticks, shown apart from what the schedules make."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from rota.api.answers import PageQuery, answer, answer_page
from rota.api.context import Api, Context, Namespace
from rota.api.idempotency import OnlyOnce
from rota.api.lookup import read_id, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.backfills import Backfill, BackfillBody, BackfillPlan
from rota.api.schemas.base import Page
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput, NotFound
from rota.engine.backfill import BackfillRequest
from rota.store.reads import backfills
from rota.store.reads.pages import Listing

router = APIRouter(tags=["backfills"], route_class=LimitedRoute)
Action = Annotated[str, Path(pattern="^(pause|resume|cancel)$")]
STATUS = {"pause": "paused", "resume": "running", "cancel": "cancelled"}


@router.post(
    "/workflows/{workflow}/backfills",
    status_code=201,
    response_model=Backfill,
    responses={200: {"model": BackfillPlan}},
)
@needs(Permission.OPERATE)
async def create_backfill(
    api: Context, namespace: Namespace, workflow: str, body: BackfillBody, once: OnlyOnce
) -> Response:
    """Makes the runs of a schedule's past ticks, step by step; with `dry_run` it only counts them."""
    return await once(lambda: _create(api, namespace, workflow, body))


async def _create(api: Api, namespace: str, workflow: str, body: BackfillBody) -> Response:
    found = await require_workflow(api, namespace, workflow)
    request = BackfillRequest(
        from_at=_read_moment("from", body.from_at),
        until_at=_read_moment("to", body.until_at),
        schedule_id=body.schedule_id,
        is_backward=body.direction == "backward",
        is_only_missing=body.only_missing,
        max_active=body.max_active,
        max_runs=body.max_runs,
        params=body.params,
    )
    if body.dry_run:
        return answer(BackfillPlan.model_validate(await api.engine.plan_backfill(found, request)))
    backfill_id = await api.engine.create_backfill(found, request)
    made = await _read(api, namespace, backfill_id)
    return answer(made, 201, {"Location": f"/api/v1/backfills/{backfill_id}"})


def _read_moment(name: str, moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvalidInput.of([FieldError(name, "needs an offset, such as 2030-01-31T08:00:00Z")])
    return moment.astimezone(UTC)


@router.get("/workflows/{workflow}/backfills", response_model=Page[Backfill])
@needs(Permission.VIEW)
async def list_backfills(api: Context, namespace: Namespace, workflow: str, page: PageQuery) -> Response:
    """The backfills of a workflow, with their progress."""
    found = await require_workflow(api, namespace, workflow)
    listing = await api.database.read(lambda tx: backfills.list_backfills(tx, found.id, page))
    made = await _make(api, listing.rows)
    return answer_page(Page[Backfill], Listing(made, listing.total, listing.next_after), lambda item: item)


@router.get("/backfills/{backfill_id}", response_model=Backfill)
@needs(Permission.VIEW)
async def read_backfill(api: Context, namespace: Namespace, backfill_id: str) -> Response:
    """One backfill with its progress."""
    return answer(await _read(api, namespace, backfill_id))


@router.post("/backfills/{backfill_id}/{action}", response_model=Backfill)
@needs(Permission.OPERATE)
async def change_backfill(
    api: Context,
    namespace: Namespace,
    backfill_id: str,
    action: Annotated[str, Path(pattern="^(pause|resume|cancel)$")],
) -> Response:
    """`pause`: makes no further runs. `resume`: goes on. `cancel`: ends it, and cancels its open runs."""
    wanted = read_id(backfill_id, "backfill")
    await api.engine.change_backfill(namespace, wanted, STATUS[action])
    return answer(await _read(api, namespace, wanted))


async def _read(api: Api, namespace: str, backfill_id: str) -> Backfill:
    wanted = read_id(backfill_id, "backfill")
    row = await api.database.read(lambda tx: backfills.read_backfill(tx, namespace, wanted))
    if row is None:
        raise NotFound(f"there is no backfill {backfill_id}")
    return (await _make(api, [row]))[0]


async def _make(api: Api, rows: Any) -> list[Backfill]:
    counts = await api.database.read(lambda tx: backfills.count_by_status(tx, [row.id for row in rows]))
    same = [name for name in Backfill.model_fields if name not in ("definition", "direction", "only_missing", "runs")]
    return [
        Backfill(
            **{name: getattr(row, name) for name in same},
            definition={name: value for name, value in row.spec.items() if name != "seed"},
            direction="backward" if row.is_backward else "forward",
            only_missing=row.is_only_missing,
            runs=counts[row.id],
        )
        for row in rows
    ]
