"""Queues: pausing them, and limiting how fast their task runs start."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from rota.api.answers import answer
from rota.api.context import Api, Context, Namespace
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.definitions import Queue, QueueBody, Queues, RateLimit
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput, NotFound
from rota.domain.rates import Rate
from rota.domain.spec_names import check_key
from rota.store import queues
from rota.store.queues import QueueSettings

router = APIRouter(prefix="/queues", tags=["queues"], route_class=LimitedRoute)
Name = Annotated[str, Path(max_length=100)]


@router.get("", response_model=Queues)
@needs(Permission.VIEW)
async def list_queues(api: Context, namespace: Namespace) -> Response:
    """Lists the queues that are paused, limited or described, by name. Others exist as soon as a task names them."""
    rows = await api.database.read(lambda tx: queues.read_queues(tx, namespace))
    return answer(Queues(items=[_show(row) for row in rows], total=len(rows)))


@router.get("/{name}", response_model=Queue)
@needs(Permission.VIEW)
async def read_queue(api: Context, namespace: Namespace, name: Name) -> Response:
    """What has been said about one queue."""
    return answer(await _require_queue(api, namespace, name))


@router.put("/{name}", response_model=Queue, responses={201: {"model": Queue}})
@needs(Permission.EDIT)
async def put_queue(api: Context, namespace: Namespace, name: Name, body: QueueBody) -> Response:
    """Pauses a queue, or limits how many of its task runs start in a time. What runs already goes on."""
    fault = check_key(name)
    if fault is not None:
        raise InvalidInput.of([FieldError("name", fault)])
    wanted = QueueSettings(_read_rate(body.rate_limit), body.is_paused, body.description)
    is_new = await api.engine.put_queue(namespace, name, wanted)
    return answer(await _require_queue(api, namespace, name), 201 if is_new else 200)


@router.delete("/{name}", status_code=204)
@needs(Permission.EDIT)
async def delete_queue(api: Context, namespace: Namespace, name: Name) -> Response:
    """Forgets what has been said about a queue: its task runs start as workers take them."""
    if not await api.engine.delete_queue(namespace, name):
        raise _explain_missing(name)
    return Response(status_code=204)


def _read_rate(limit: RateLimit | None) -> Rate | None:
    if limit is None:
        return None
    # Without a word about it, as much as a second's share may come at once.
    burst = limit.burst or max(1, round(limit.starts / max(1.0, limit.seconds)))
    return Rate(limit.starts, limit.seconds, burst)


async def _require_queue(api: Api, namespace: str, name: str) -> Queue:
    row = await api.database.read(lambda tx: queues.read_queue(tx, namespace, name))
    if row is None:
        raise _explain_missing(name)
    return _show(row)


def _explain_missing(name: str) -> NotFound:
    return NotFound(f"nothing has been said about a queue {name}: PUT it to pause or to limit it")


def _show(row: Any) -> Queue:
    rate = Rate(row.rate_starts, row.rate_seconds, row.rate_burst) if row.rate_starts else None
    return Queue(
        namespace=row.namespace,
        name=row.name,
        rate_limit=RateLimit(starts=rate.starts, seconds=rate.seconds, burst=rate.burst) if rate else None,
        is_paused=row.is_paused,
        queued=row.queued,
        next_start_at=rate.find_next(row.paid_at, row.at) if rate and not row.is_paused else None,
        description=row.description,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
