"""Statements on leases: who alone may do something, until when on the database's time, and in which term."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Float, String, bindparam, literal, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOTHING, NOW, Id, add_seconds, insert_new
from rota.store.tables_service import leases, nodes
from rota.store.wakeups import Topic

# The lease of the node that keeps house.
LEADER = "leader"

_l = leases.c
_named = _l.name == bindparam("of_lease", type_=String())
_mine = (_l.holder == bindparam("of_holder", type_=Id())) & (_l.term == bindparam("of_term", type_=BigInteger()))
_until = add_seconds(NOW, bindparam("lease_seconds", type_=Float()))


class Lease(NamedTuple):
    """A lease as it stands. Its term grows with every change of hands."""

    holder: str
    holder_name: str | None
    term: int
    acquired_at: datetime
    expires_at: datetime
    is_live: bool


_READ = (
    select(_l.holder, nodes.c.name, _l.term, _l.acquired_at, _l.expires_at, (_l.expires_at > NOW).label("is_live"))
    .join_from(leases, nodes, nodes.c.id == _l.holder, isouter=True)
    .where(_named)
)


async def read_lease(transaction: Transaction, name: str) -> Lease | None:
    row = await transaction.row(_READ, {"of_lease": name})
    return None if row is None else Lease(*row)


_RENEW = update(leases).values(expires_at=_until).where(_named, _mine, _l.expires_at > NOW).returning(_l.term)


async def renew_lease(transaction: Transaction, name: str, holder: str, term: int, lease_seconds: float) -> bool:
    """Holds on to the lease; False once it has run out, whoever has it now."""
    parameters: dict[str, Any] = {"of_lease": name, "of_holder": holder, "of_term": term}
    return await transaction.row(_RENEW, {**parameters, "lease_seconds": lease_seconds}) is not None


_FIRST = insert_new(
    leases,
    {
        "name": bindparam("of_lease", type_=String()),
        "holder": literal(NOTHING, Id()),
        "term": literal(0, BigInteger()),
        "acquired_at": NOW,
        "expires_at": NOW,
    },
)
# Whoever still acts under the old term holds the row (`hold_term`): then it is not free yet, and nobody waits for it.
_free = select(_l.name).where(_named, _l.expires_at <= NOW).with_for_update(skip_locked=True).cte("free")
_ACQUIRE = (
    update(leases)
    .values(holder=bindparam("new_holder", type_=Id()), term=_l.term + 1, acquired_at=NOW, expires_at=_until)
    .where(_l.name == _free.c.name, _l.expires_at <= NOW)
    .returning(_l.term)
)


async def acquire_lease(transaction: Transaction, name: str, holder: str, lease_seconds: float) -> int | None:
    """Takes a lease that nobody has; its new term, or None if somebody was faster."""
    parameters = {"of_lease": name, "new_holder": holder, "lease_seconds": lease_seconds}
    row = await transaction.row(_ACQUIRE, parameters)
    if row is None and await transaction.run(_FIRST, {"of_lease": name}):
        row = await transaction.row(_ACQUIRE, parameters)
    if row is not None:
        transaction.wake(Topic.CLUSTER)
    return None if row is None else int(row.term)


_RELEASE = update(leases).values(expires_at=NOW).where(_named, _mine, _l.expires_at > NOW).returning(_l.term)


async def release_lease(transaction: Transaction, name: str, holder: str, term: int) -> bool:
    """Gives the lease up at once, and wakes up who may take it."""
    row = await transaction.row(_RELEASE, {"of_lease": name, "of_holder": holder, "of_term": term})
    if row is not None:
        transaction.wake(Topic.CLUSTER)
    return row is not None


_HOLD = select(_l.term).where(_named, _mine, _l.expires_at > NOW).with_for_update(read=True, key_share=True)


async def hold_term(transaction: Transaction, name: str, holder: str, term: int) -> bool:
    """Whether the lease is held in this term; if so, nobody else gets it before this transaction has ended."""
    parameters = {"of_lease": name, "of_holder": holder, "of_term": term}
    return await transaction.row(_HOLD, parameters) is not None
