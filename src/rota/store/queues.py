"""Statements on queues: whether they are paused, and how many task runs of them may start in a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Float,
    Integer,
    String,
    Text,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)

from rota.domain.rates import Rate
from rota.store.database import Transaction
from rota.store.dialect import NOW, Instant, batch, constant, insert_new
from rota.store.encoding import encode_rows, to_microseconds
from rota.store.tables import lanes, task_runs
from rota.store.tables_limits import queues
from rota.store.wakeups import Topic

_q = queues.c
_t = task_runs.c
QueueName = tuple[str, str]

_LIMITED = select(_q.namespace, _q.name).where(or_(_q.is_paused, _q.rate_starts.is_not(None)))


async def find_limited(transaction: Transaction) -> frozenset[QueueName]:
    """(namespace, name) of every queue from which not everything may start."""
    return frozenset((row.namespace, row.name) for row in await transaction.rows(_LIMITED))


class QueueLimit(NamedTuple):
    """What may start of a queue, as it stands now."""

    is_paused: bool
    rate: Rate | None
    paid_at: datetime | None
    now: datetime

    @property
    def free(self) -> int | None:
        """How many may start now; None if there is no limit (any more)."""
        if self.is_paused:
            return 0
        return None if self.rate is None else self.rate.count_free(self.paid_at, self.now)

    @property
    def next_at(self) -> datetime | None:
        """When something may start again; None if somebody has to unpause it."""
        if self.is_paused:
            return None
        return self.now if self.rate is None else self.rate.find_next(self.paid_at, self.now)


_names = batch("queue_names", namespace=String(200), name=String(200))
_READ_LIMITS = (
    select(
        _q.namespace, _q.name, _q.is_paused, _q.rate_starts, _q.rate_seconds, _q.rate_burst, _q.paid_at, NOW.label("at")
    )
    .join(_names, (_names.c.namespace == _q.namespace) & (_names.c.name == _q.name))
    .order_by(_q.namespace, _q.name)
)
_LOCK_LIMITS = _READ_LIMITS.with_for_update(of=queues, skip_locked=True)


async def read_limits(
    transaction: Transaction, names: Iterable[QueueName], *, locks: bool
) -> dict[QueueName, QueueLimit]:
    """The limits of these queues; with `locks`, without those that another claim is looking at."""
    parameters = {"queue_names": encode_rows(sorted(set(names)))}
    rows = await transaction.rows(_LOCK_LIMITS if locks else _READ_LIMITS, parameters)
    return {
        (row.namespace, row.name): QueueLimit(
            row.is_paused,
            Rate(row.rate_starts, row.rate_seconds, row.rate_burst) if row.rate_starts else None,
            row.paid_at,
            row.at,
        )
        for row in rows
    }


_payments = batch("payments", namespace=String(200), name=String(200), paid_at=Instant())
_PAY = (
    update(queues)
    .values(paid_at=_payments.c.paid_at)
    .where(_q.namespace == _payments.c.namespace, _q.name == _payments.c.name)
)


async def pay(transaction: Transaction, payments: Iterable[tuple[QueueName, datetime]]) -> None:
    """Keeps what has started: (queue, instant by which it is earned). The queues are locked."""
    rows = [(*name, to_microseconds(paid_at)) for name, paid_at in payments]
    await transaction.run(_PAY, {"payments": encode_rows(rows)})


_named = (
    _q.namespace == bindparam("of_namespace", type_=String()),
    _q.name == bindparam("of_name", type_=String()),
)
_values: dict[str, ColumnElement[Any]] = {
    "is_paused": bindparam("new_is_paused", type_=Boolean()),
    "description": bindparam("new_description", type_=Text()),
    "rate_starts": bindparam("new_starts", type_=Integer()),
    "rate_seconds": bindparam("new_seconds", type_=Float()),
    "rate_burst": bindparam("new_burst", type_=Integer()),
    "updated_at": NOW,
}
# What was owed at another rate does not count.
_CHANGE = update(queues).values(**_values, paid_at=None).where(*_named).returning(_q.name)
_CREATE = insert_new(
    queues,
    {
        "namespace": bindparam("of_namespace", type_=String()),
        "name": bindparam("of_name", type_=String()),
        **_values,
        "created_at": NOW,
    },
)


class QueueSettings(NamedTuple):
    """What somebody wants of a queue."""

    rate: Rate | None = None
    is_paused: bool = False
    description: str = ""


async def put_queue(transaction: Transaction, namespace: str, name: str, wanted: QueueSettings) -> bool:
    """Makes the queue's settings be so, whether it has some or not; True if they are its first."""
    rate = wanted.rate
    values = {
        "of_namespace": namespace,
        "of_name": name,
        "new_is_paused": wanted.is_paused,
        "new_description": wanted.description,
        "new_starts": rate.starts if rate else None,
        "new_seconds": rate.seconds if rate else None,
        "new_burst": rate.burst if rate else None,
    }
    is_new = await transaction.row(_CHANGE, values) is None
    if is_new:
        await transaction.run(_CREATE, values)
    transaction.wake(Topic.QUEUE)
    return is_new


_QUEUED = (
    select(func.count())
    .where(
        _t.status == constant("queued"),
        _t.lane_id.in_(
            select(lanes.c.id).where(lanes.c.namespace == _q.namespace, lanes.c.queue == _q.name).correlate(queues)
        ),
    )
    .correlate(queues)
    .scalar_subquery()
)
_READ = select(*queues.c, _QUEUED.label("queued"), NOW.label("at"))
_LIST = _READ.where(_q.namespace == bindparam("of_namespace", type_=String())).order_by(_q.name)
_ONE = _READ.where(*_named)


async def read_queues(transaction: Transaction, namespace: str) -> Sequence[Any]:
    """The queues of a namespace that have settings, and how much waits in them."""
    return await transaction.rows(_LIST, {"of_namespace": namespace})


async def read_queue(transaction: Transaction, namespace: str, name: str) -> Any | None:
    return await transaction.row(_ONE, {"of_namespace": namespace, "of_name": name})


_DELETE = delete(queues).where(*_named).returning(_q.name)


async def delete_queue(transaction: Transaction, namespace: str, name: str) -> bool:
    """Forgets the settings of a queue: everything in it may start. False if it had none."""
    is_gone = await transaction.row(_DELETE, {"of_namespace": namespace, "of_name": name}) is not None
    transaction.wake(Topic.QUEUE)
    return is_gone
