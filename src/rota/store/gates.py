"""Statements on task runs that the engine looks at when they are ready, and on those that it holds itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Float, Integer, String, Text, bindparam, case, func, select, type_coerce, update

from rota.domain.states import Holder, TaskState
from rota.store import workflow_runs
from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, add_seconds, among, batch, constant, within
from rota.store.encoding import encode_json, encode_rows, to_microseconds
from rota.store.tables import task_runs
from rota.store.task_runs import RANK

_t = task_runs.c


class ReadyRow(NamedTuple):
    """A task run that has just been queued, in this transaction."""

    id: str
    run_id: str
    namespace: str
    workflow_id: str
    task_id: str
    map_index: int
    attempt: int
    failure_count: int
    logical_date: datetime
    lane_id: int
    downstream_count: int
    is_teardown: bool
    item: Any


_ready = batch("ready", id=Id())
_READ_READY = (
    select(*(_t[name] for name in ReadyRow._fields))
    .where(within(_t.id, select(_ready.c.id).scalar_subquery()), _t.status == constant("queued"))
    .order_by(_t.id)
)


_READ_HELD = select(*(_t[name] for name in ReadyRow._fields)).where(
    within(_t.id, select(_ready.c.id).scalar_subquery()), _t.holder.is_not(None)
)


async def read_held(transaction: Transaction, task_run_ids: Sequence[str]) -> list[ReadyRow]:
    """Those of these task runs that the engine holds."""
    parameters = {"ready": encode_rows([(task_run_id,) for task_run_id in task_run_ids])}
    return [ReadyRow(*row) for row in await transaction.rows(_READ_HELD, parameters)]


async def read_ready(transaction: Transaction, task_run_ids: Sequence[str]) -> list[ReadyRow]:
    """Those of these task runs that are queued."""
    parameters = {"ready": encode_rows([(task_run_id,) for task_run_id in task_run_ids])}
    return [ReadyRow(*row) for row in await transaction.rows(_READ_READY, parameters)]


class Verdict(NamedTuple):
    """How a task run ends that no worker will see."""

    task_run_id: str
    status: TaskState
    error_type: str | None = None
    error: str | None = None
    output_json: str | None = None


_verdicts = batch("verdicts", id=Id(), status=String(20), error_type=String(40), error=Text(), output=Text())
_CLOSE = (
    update(task_runs)
    .values(
        status=_verdicts.c.status,
        error_type=_verdicts.c.error_type,
        error=_verdicts.c.error,
        output=_verdicts.c.output,
        finished_at=NOW,
    )
    .where(
        _t.id == _verdicts.c.id,
        among(_t.id, select(_verdicts.c.id).scalar_subquery()),
        _t.status == constant("queued"),
    )
    .returning(_t.id)
)


async def close_ready(transaction: Transaction, verdicts: Sequence[Verdict]) -> set[str]:
    """Ends queued task runs; returns the ids of those that it ended."""
    rows = await transaction.rows(_CLOSE, {"verdicts": encode_rows(verdicts)})
    return {row.id for row in rows}


class Hold(NamedTuple):
    """A queued task run that the engine looks after from now on, until something happens or the time comes.

    The time is `due_at` or `due_seconds` from now, the earlier of both, or there is none.
    """

    task_run_id: str
    holder: Holder
    due_at: datetime | None = None
    due_seconds: float | None = None
    # For people.
    waiting_for: Mapping[str, Any] | None = None


_holds = batch("holds", id=Id(), holder=String(20), due_at=Instant(), due_seconds=Float(), waiting_for=Text())
_due_later_at = add_seconds(NOW, _holds.c.due_seconds)
_HOLD = (
    update(task_runs)
    .values(
        status="running",
        holder=_holds.c.holder,
        is_calling=_holds.c.holder == constant("run"),
        attempt=_t.attempt + 1,
        worker_id=None,
        incarnation=None,
        started_at=NOW,
        due_at=case(
            (_holds.c.due_at <= _due_later_at, _holds.c.due_at), else_=func.coalesce(_due_later_at, _holds.c.due_at)
        ),
        waiting_for=type_coerce(_holds.c.waiting_for, Text()),
    )
    .where(_t.id == _holds.c.id, among(_t.id, select(_holds.c.id).scalar_subquery()), _t.status == constant("queued"))
    .returning(_t.id, _t.attempt)
)


async def hold(transaction: Transaction, holds: Sequence[Hold]) -> dict[str, int]:
    """Starts queued task runs without a worker; returns the attempt that each is at."""
    rows = [
        (
            item.task_run_id,
            item.holder,
            to_microseconds(item.due_at),
            item.due_seconds,
            None if item.waiting_for is None else encode_json(item.waiting_for),
        )
        for item in holds
    ]
    return {row.id: row.attempt for row in await transaction.rows(_HOLD, {"holds": encode_rows(rows)})}


_FIND_RETRIES = (
    select(_t.id, _t.run_id)
    .where(_t.status == constant("retrying"), _t.due_at <= NOW, _t.is_gated.is_(True))
    .order_by(_t.due_at)
    .limit(bindparam("at_most", type_=Integer()))
)
_again = batch("due_retries", id=Id())
_QUEUE_RETRIES = (
    update(task_runs)
    .values(status="queued", claim_rank=RANK, queued_at=NOW, due_at=None)
    .where(within(_t.id, select(_again.c.id).scalar_subquery()), _t.status == constant("retrying"), _t.due_at <= NOW)
    .returning(_t.id, _t.run_id, _t.namespace, _t.task_id, _t.is_gated)
)


async def queue_due_retries(transaction: Transaction, limit: int) -> Sequence[Any]:
    """Queues gated task runs whose next try is due. Locks their runs."""
    found = await transaction.rows(_FIND_RETRIES, {"at_most": limit})
    if not found:
        return []
    await workflow_runs.lock_runs(transaction, [row.run_id for row in found])
    return await transaction.rows(_QUEUE_RETRIES, {"due_retries": encode_rows([(row.id,) for row in found])})


class DueRow(NamedTuple):
    """A task run that the engine holds, and whose time has come."""

    id: str
    run_id: str
    namespace: str
    workflow_id: str
    task_id: str
    map_index: int
    attempt: int
    holder: str
    due_at: datetime
    started_at: datetime
    timeout_seconds: float | None
    waiting_for: Any


_FIND_DUE = (
    select(*(_t[name] for name in DueRow._fields))
    .where(_t.holder != constant("poll"), _t.due_at.is_not(None), _t.due_at <= NOW)
    .order_by(_t.due_at)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_due(transaction: Transaction, limit: int) -> list[DueRow]:
    """Held task runs whose time has come, the longest overdue first. They are not locked: their runs come first."""
    return [DueRow(*row) for row in await transaction.rows(_FIND_DUE, {"at_most": limit})]


_NEXT_DUE = select(func.min(_t.due_at)).where(_t.holder != constant("poll"), _t.due_at.is_not(None))


async def read_next_due(transaction: Transaction) -> Any:
    """When the next held task run is due; None if there is none."""
    row = await transaction.row(_NEXT_DUE)
    return row[0] if row else None


class PutOff(NamedTuple):
    """When a held task run is due next. It counts only while it is due when it was: nobody else has put it off."""

    task_run_id: str
    attempt: int
    due_at: datetime
    next_due_at: datetime
    # As it was, if left out.
    waiting_for: Any = None


_put_off = batch("put_off", id=Id(), attempt=Integer(), due_at=Instant(), next_due_at=Instant(), waiting_for=Text())
# Nobody is waited for who changes one of them at this moment: only those who have locked their runs may wait.
_free = (
    select(_t.id)
    .where(within(_t.id, select(_put_off.c.id).scalar_subquery()), _t.holder.is_not(None))
    .with_for_update(skip_locked=True)
    .cte("free")
)
_PUT_OFF = (
    update(task_runs)
    .values(
        due_at=_put_off.c.next_due_at,
        waiting_for=func.coalesce(_put_off.c.waiting_for, type_coerce(_t.waiting_for, Text())),
    )
    .where(
        _t.id == _put_off.c.id,
        _t.id == _free.c.id,
        among(_t.id, select(_put_off.c.id).scalar_subquery()),
        _t.holder.is_not(None),
        _t.attempt == _put_off.c.attempt,
        _t.due_at == _put_off.c.due_at,
    )
    .returning(_t.id)
)


async def put_off(transaction: Transaction, items: Sequence[PutOff]) -> set[str]:
    """Makes held task runs due later; the ids of those that were still due as it says."""
    rows = [
        (
            item.task_run_id,
            item.attempt,
            to_microseconds(item.due_at),
            to_microseconds(item.next_due_at),
            None if item.waiting_for is None else encode_json(item.waiting_for),
        )
        for item in items
    ]
    return {row.id for row in await transaction.rows(_PUT_OFF, {"put_off": encode_rows(rows)})}
