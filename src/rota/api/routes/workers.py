"""Workers, as people see them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from rota.api.answers import PageQuery, answer, answer_page, read_states
from rota.api.context import Api, Context
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.routes.runs import StatusQuery
from rota.api.schemas.base import Page
from rota.api.schemas.workers import Worker
from rota.domain.access import Permission
from rota.domain.errors import NotFound
from rota.domain.ids import is_uuid
from rota.domain.states import WorkerState
from rota.store.reads import workers

router = APIRouter(prefix="/workers", tags=["workers"], route_class=LimitedRoute)
# Those that are gone are listed only when they are asked for.
PRESENT = (WorkerState.ACTIVE, WorkerState.DRAINING)


@router.get("", response_model=Page[Worker])
@needs(Permission.VIEW)
async def list_workers(api: Context, page: PageQuery, status: StatusQuery = None) -> Response:
    """Lists the workers that are there, or those in the states that are asked for."""
    states = read_states(status, list(WorkerState), str.lower) if status else list(PRESENT)
    listing = await api.database.read(lambda tx: workers.list_workers(tx, states, page))
    return answer_page(Page[Worker], listing, Worker.model_validate)


@router.get("/{worker}", response_model=Worker)
@needs(Permission.VIEW)
async def read_worker(api: Context, worker: str) -> Response:
    """One worker by its id, or the newest active one with this label."""
    return answer(Worker.model_validate(await _require_worker(api, worker)))


@router.post("/{worker}/drain", response_model=Worker)
@needs(Permission.OPERATE, everywhere=True)
async def drain_worker(api: Context, worker: str) -> Response:
    """Asks a worker to finish what it has and to take no more."""
    row = await _require_worker(api, worker)
    await api.engine.drain_worker(row.id)
    return answer(Worker.model_validate(await _require_worker(api, row.id)))


async def _require_worker(api: Api, worker: str) -> Any:
    worker_id = worker.lower() if is_uuid(worker) else None
    row = await api.database.read(lambda tx: workers.read_worker(tx, worker_id=worker_id, name=worker))
    if row is None:
        raise NotFound(f"there is no worker {worker[:200]}")
    return row
