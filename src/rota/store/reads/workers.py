"""Workers, as people read them, and as their requests are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import String, and_, bindparam, func, or_, select

from rota.store.database import Transaction
from rota.store.dialect import Id
from rota.store.reads.pages import Listing, PageRequest, read_page
from rota.store.tables import task_runs
from rota.store.tables_service import workers

_w = workers.c
_t = task_runs.c

_RUNNING = (
    select(func.count())
    .where(_t.status == "running", _t.worker_id == _w.id)
    .correlate(workers)
    .scalar_subquery()
    .label("running")
)
_WORKERS = select(
    _w.id,
    _w.name,
    _w.hostname,
    _w.status,
    _w.queues,
    _w.kinds,
    _w.labels,
    _w.concurrency,
    _w.software_version.label("version"),
    _w.is_drain_requested,
    _w.started_at,
    _w.last_heartbeat,
    _w.lease_expires_at,
    _w.finished_at,
    _RUNNING,
)


async def list_workers(transaction: Transaction, statuses: Sequence[str], page: PageRequest) -> Listing:
    """Workers in these states, the newest first."""
    return await read_page(transaction, _WORKERS.where(_w.status.in_(statuses)), _w.id, page)


_named = or_(
    _w.id == bindparam("wanted_id", type_=Id()),
    and_(_w.name == bindparam("wanted_name", type_=String()), _w.status != "inactive"),
)
_ONE = _WORKERS.where(_named).order_by(_w.id.desc()).limit(1)


async def read_worker(transaction: Transaction, *, worker_id: str | None, name: str) -> Any | None:
    """A worker by its id, or the newest active one with this label."""
    return await transaction.row(_ONE, {"wanted_id": worker_id, "wanted_name": name})


_IDENTITY = select(_w.id, _w.name, _w.incarnation)
_OF_INCARNATION = _IDENTITY.where(_w.incarnation == bindparam("wanted_incarnation", type_=String()))
_ACTIVE = _IDENTITY.where(_named, _w.status != "inactive").order_by(_w.id.desc()).limit(1)


async def find_incarnation(transaction: Transaction, incarnation: str) -> Any | None:
    """Id and label of the worker to which this token was given."""
    return await transaction.row(_OF_INCARNATION, {"wanted_incarnation": incarnation})


async def find_active(transaction: Transaction, *, worker_id: str | None, name: str) -> Any | None:
    """Id and incarnation of an active worker, by its id or its label."""
    return await transaction.row(_ACTIVE, {"wanted_id": worker_id, "wanted_name": name})


_HELD = (
    select(_t.id, _t.attempt)
    .where(
        _t.status == "running",
        _t.incarnation == bindparam("of_incarnation", type_=String()),
        or_(_t.id == bindparam("wanted_id", type_=Id()), _t.workflow_id == bindparam("wanted_id", type_=Id())),
    )
    .order_by(_t.id.desc())
    .limit(1)
)


async def find_held_attempt(transaction: Transaction, incarnation: str, wanted_id: str) -> Any | None:
    """The attempt that a worker executes, by its task run or its job."""
    return await transaction.row(_HELD, {"of_incarnation": incarnation, "wanted_id": wanted_id})
