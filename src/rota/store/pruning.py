"""Statements that delete what is older than its retention, a bounded number of rows at a time."""

from __future__ import annotations

from sqlalchemy import Float, Integer, bindparam, delete, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.tables import state_history, workflow_runs
from rota.store.tables_service import idempotency_keys, workers

_r = workflow_runs.c
_limit = bindparam("at_most", type_=Integer())
_cutoff = add_seconds(NOW, bindparam("minus_seconds", type_=Float()))

_OLD_RUNS = (
    select(_r.id)
    .where(_r.finished_at < _cutoff, _r.is_untold.is_(False))
    .order_by(_r.finished_at)
    .limit(_limit)
    .with_for_update(skip_locked=True)
)
_gone = batch("gone", id=Id())
_DELETE_HISTORY = delete(state_history).where(within(state_history.c.root_id, select(_gone.c.id).scalar_subquery()))
_DELETE_RUNS = delete(workflow_runs).where(within(_r.id, select(_gone.c.id).scalar_subquery()))


async def delete_old_runs(transaction: Transaction, *, retention_seconds: float, limit: int) -> int:
    """Deletes runs that ended before the retention, with their task runs, attempts, logs and history."""
    rows = await transaction.rows(_OLD_RUNS, {"minus_seconds": -retention_seconds, "at_most": limit})
    if rows:
        parameters = {"gone": encode_rows([(row.id,) for row in rows])}
        await transaction.run(_DELETE_HISTORY, parameters)
        await transaction.run(_DELETE_RUNS, parameters)
    return len(rows)


_OLD_WORKERS = (
    delete(workers).where(
        workers.c.id.in_(
            select(workers.c.id)
            .where(workers.c.status == constant("inactive"), workers.c.finished_at < _cutoff)
            .order_by(workers.c.id)
            .limit(_limit)
        )
    )
).returning(workers.c.id)


async def delete_old_workers(transaction: Transaction, *, retention_seconds: float, limit: int) -> int:
    """Deletes workers that stopped before the retention."""
    return len(await transaction.rows(_OLD_WORKERS, {"minus_seconds": -retention_seconds, "at_most": limit}))


_k = idempotency_keys.c
_OLD_KEYS = delete(idempotency_keys).where(_k.created_at < _cutoff)


async def delete_old_keys(transaction: Transaction, *, retention_seconds: float) -> int:
    """Deletes idempotency keys that are older than their promise."""
    return await transaction.run(_OLD_KEYS, {"minus_seconds": -retention_seconds})
