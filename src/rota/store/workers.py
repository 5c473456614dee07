"""Statements on workers: registration, heartbeat, leases, loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Float, Integer, String, bindparam, case, insert, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, among, batch, constant
from rota.store.encoding import clean_text, encode_rows
from rota.store.tables import task_runs
from rota.store.tables_service import workers

_w = workers.c
_t = task_runs.c
_lease = add_seconds(NOW, bindparam("lease_seconds", type_=Float()))

_REGISTER = insert(workers).values(
    id=bindparam("new_id", type_=Id()),
    name=bindparam("name"),
    incarnation=bindparam("new_incarnation"),
    hostname=bindparam("hostname"),
    queues=bindparam("queues"),
    kinds=bindparam("kinds"),
    labels=bindparam("labels"),
    concurrency=bindparam("concurrency"),
    software_version=bindparam("software_version"),
    status="active",
    started_at=NOW,
    last_heartbeat=NOW,
    lease_expires_at=_lease,
)


async def insert_worker(transaction: Transaction, values: dict[str, Any]) -> None:
    cleaned = {name: clean_text(value) if isinstance(value, str) else value for name, value in values.items()}
    await transaction.run(_REGISTER, cleaned)


_by_incarnation = _w.incarnation == bindparam("of_incarnation", type_=String())
_FIND = select(_w.id, _w.queues, _w.kinds, _w.labels).where(_by_incarnation, _w.status != constant("inactive"))


async def find_incarnation(transaction: Transaction, incarnation: str) -> Any | None:
    return await transaction.row(_FIND, {"of_incarnation": incarnation})


_HEARTBEAT = (
    update(workers)
    .values(
        last_heartbeat=NOW,
        lease_expires_at=_lease,
        status=case((_w.is_drain_requested, "draining"), else_="active"),
    )
    .where(_w.id == bindparam("of_worker", type_=Id()), _by_incarnation, _w.status != constant("inactive"))
    .returning(_w.id, _w.is_drain_requested, _w.status)
)


async def beat(transaction: Transaction, worker_id: str, incarnation: str, lease_seconds: float) -> Any | None:
    """Notes that a worker is alive; None if it is unknown or has been given up."""
    return await transaction.row(
        _HEARTBEAT, {"of_worker": worker_id, "of_incarnation": incarnation, "lease_seconds": lease_seconds}
    )


_held = batch("held", id=Id(), attempt=Integer())
# A row that is locked is being finished right now: it needs no lease.
_renewable = (
    select(_t.id, _held.c.attempt)
    .join(_held, _held.c.id == _t.id)
    .where(
        among(_t.id, select(_held.c.id).scalar_subquery()),
        _t.status == constant("running"),
        _t.attempt == _held.c.attempt,
        _t.incarnation == bindparam("of_incarnation", type_=String()),
    )
    .order_by(_t.id)
    .with_for_update(of=task_runs, skip_locked=True)
    .cte("renewable")
)
_RENEW = (
    update(task_runs)
    .values(lease_expires_at=_lease)
    .where(_t.id == _renewable.c.id)
    # Not compared here: in RETURNING, SQLite may answer IS NOT NULL wrongly.
    .returning(_t.id, _t.attempt, _t.cancel_requested_at)
)


async def renew_leases(
    transaction: Transaction, incarnation: str, held: Sequence[tuple[str, int]], lease_seconds: float
) -> list[tuple[str, int, bool]]:
    """Renews the leases of (task run id, attempt); returns those renewed, and whether each is to be cancelled."""
    rows = await transaction.rows(
        _RENEW, {"held": encode_rows(held), "of_incarnation": incarnation, "lease_seconds": lease_seconds}
    )
    return [(row[0], row[1], row[2] is not None) for row in rows]


_STILL = (
    select(_t.id, _t.attempt)
    .join(_held, _held.c.id == _t.id)
    .where(
        among(_t.id, select(_held.c.id).scalar_subquery()),
        _t.status == constant("running"),
        _t.attempt == _held.c.attempt,
        _t.incarnation == bindparam("of_incarnation", type_=String()),
    )
)


async def find_held(
    transaction: Transaction, incarnation: str, held: Sequence[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Which of these attempts still belong to the incarnation, whoever holds their locks."""
    rows = await transaction.rows(_STILL, {"held": encode_rows(held), "of_incarnation": incarnation})
    return {(row[0], row[1]) for row in rows}


_RUNNING_OF = (
    select(_t.id, _t.attempt, _t.incarnation)
    # In no order: SQLite would read the whole table to have one.
    .where(
        _t.status == constant("running"),
        _t.holder.is_(None),
        _t.incarnation == bindparam("of_incarnation", type_=String()),
    )
)


async def find_running(transaction: Transaction, incarnation: str) -> Sequence[Any]:
    """What the database thinks that this incarnation executes."""
    return await transaction.rows(_RUNNING_OF, {"of_incarnation": incarnation})


_earlier = add_seconds(NOW, bindparam("suspect_seconds", type_=Float()))
_doubted = (
    select(_t.id)
    .where(
        _t.status == constant("running"),
        _t.holder.is_(None),
        _t.incarnation == bindparam("of_incarnation", type_=String()),
        _t.lease_expires_at > _earlier,
    )
    .with_for_update(skip_locked=True)
    .cte("doubted")
)
_SUSPECT_LEASES = update(task_runs).values(lease_expires_at=_earlier).where(_t.id == _doubted.c.id)
_SUSPECT_WORKER = (
    update(workers)
    .values(lease_expires_at=_earlier)
    .where(_by_incarnation, _w.status != constant("inactive"), _w.lease_expires_at > _earlier)
)


async def doubt(transaction: Transaction, incarnation: str, suspect_seconds: float) -> None:
    """Lets the leases of a worker end soon, unless it is heard of again."""
    parameters = {"of_incarnation": incarnation, "suspect_seconds": suspect_seconds}
    await transaction.run(_SUSPECT_LEASES, parameters)
    await transaction.run(_SUSPECT_WORKER, parameters)


_LEAVE = (
    update(workers)
    .values(status="inactive", finished_at=NOW)
    .where(_by_incarnation, _w.status != constant("inactive"))
    .returning(_w.id)
)


async def retire(transaction: Transaction, incarnation: str) -> bool:
    """The worker has stopped."""
    return await transaction.row(_LEAVE, {"of_incarnation": incarnation}) is not None


_EXPIRED = (
    update(workers)
    .values(status="inactive", finished_at=NOW)
    .where(_w.status != constant("inactive"), _w.lease_expires_at < NOW)
    .returning(_w.id, _w.incarnation, _w.name)
)


async def retire_expired(transaction: Transaction) -> Sequence[Any]:
    """Gives up workers that have not been heard of; returns them."""
    return await transaction.rows(_EXPIRED)


_DRAIN = (
    update(workers)
    .values(is_drain_requested=True)
    .where(_w.id == bindparam("of_worker", type_=Id()), _w.status != constant("inactive"))
    .returning(_w.id)
)


async def ask_to_drain(transaction: Transaction, worker_id: str) -> bool:
    return await transaction.row(_DRAIN, {"of_worker": worker_id}) is not None


_EXPIRED_ATTEMPTS = (
    select(_t.id, _t.attempt, _t.incarnation)
    .where(_t.status == constant("running"), _t.holder.is_(None), _t.lease_expires_at < NOW)
    .order_by(_t.lease_expires_at)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_expired_attempts(transaction: Transaction, limit: int) -> Sequence[Any]:
    """Attempts whose lease has run out."""
    return await transaction.rows(_EXPIRED_ATTEMPTS, {"at_most": limit})
