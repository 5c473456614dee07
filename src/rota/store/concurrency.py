"""Statements on concurrency keys: of all task runs of a namespace with the same key one holds it, and may run.

Those that wait lie in no lane, so a claim never sees them, however many keys there are. Whoever holds a key passes it
on in the transaction that ends it. What nobody has looked at yet gets its key from one `settle` at a time.
Nothing here waits for a lock: what somebody else holds is left for the next look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, String, case, func, literal, literal_column, or_, select, update

from rota.domain.states import KeyState
from rota.store.database import Transaction
from rota.store.dialect import NOTHING, NOW, Id, among, batch, constant, insert_new, within
from rota.store.encoding import encode_rows
from rota.store.lanes import FIRST_LANE
from rota.store.tables import task_runs, tasks
from rota.store.tables_service import leases

# The lane of what waits for its key. Real ones have larger numbers.
NO_LANE: ColumnElement[int] = literal_column("0", Integer())

_t = task_runs.c
_next = task_runs.alias("next")
_holding = task_runs.alias("holding")

_parked = batch("parked", id=Id(), concurrency_key=String(200))
_PARK = (
    update(task_runs)
    .values(concurrency_key=_parked.c.concurrency_key, key_state=constant(KeyState.NEW), lane_id=NO_LANE)
    .where(
        _t.id == _parked.c.id,
        among(_t.id, select(_parked.c.id).scalar_subquery()),
        _t.status == constant("queued"),
    )
)


async def park(transaction: Transaction, rows: Sequence[tuple[str, str]]) -> None:
    """Takes queued (task run, its key) out of their lanes until they hold their keys."""
    await transaction.run(_PARK, {"parked": encode_rows(rows)})


def _find_waiting(namespace: ColumnElement[str], key: ColumnElement[str]) -> Any:
    """The task run that is to have a key next."""
    return (
        select(_next.c.id)
        .where(
            _next.c.status == constant("queued"),
            _next.c.lane_id == NO_LANE,
            _next.c.namespace == namespace,
            _next.c.concurrency_key == key,
        )
        .order_by(_next.c.claim_rank, _next.c.id)
        .limit(1)
    )


# Written so that no partial index answers it: the rows are found by their ids.
_is_held = func.coalesce(_t.key_state, constant("")) == constant(KeyState.HELD)
_of = batch("holders", id=Id())
_held = (
    select(_t.id, _t.namespace, _t.concurrency_key)
    .where(within(_t.id, select(_of.c.id).scalar_subquery()), _is_held)
    .with_for_update(skip_locked=True)
    .cte("held")
    .prefix_with("MATERIALIZED")
)
_HEIRS = select(
    _held.c.id,
    _find_waiting(_held.c.namespace, _held.c.concurrency_key)
    .with_for_update(skip_locked=True)
    .scalar_subquery()
    .label("heir"),
    _find_waiting(_held.c.namespace, _held.c.concurrency_key).scalar_subquery().label("waiting"),
)
_chosen = batch("chosen", id=Id())
_RELEASE = (
    update(task_runs)
    .values(key_state=constant(KeyState.RELEASED))
    .where(within(_t.id, select(_chosen.c.id).scalar_subquery()), _is_held)
)
_home = select(tasks.c.lane_id).where(tasks.c.id == _t.task_id).scalar_subquery()
_GRANT = (
    update(task_runs)
    .values(key_state=constant(KeyState.HELD), lane_id=_home)
    .where(
        within(_t.id, select(_chosen.c.id).scalar_subquery()),
        _t.status == constant("queued"),
        _t.lane_id < literal_column(str(FIRST_LANE)),
    )
    .returning(_t.id)
)


class Settled(NamedTuple):
    """How many keys were given out, and about how many task runs it has been decided whether they have theirs."""

    granted: int
    settled: int


class Passed(NamedTuple):
    """How many keys went to the next, and how many were kept because the next one could not be had now."""

    granted: int
    kept: int


async def pass_on(transaction: Transaction, task_run_ids: Collection[str]) -> Passed:
    """Gives the keys that these hold to those who wait for them."""
    found = await transaction.rows(_HEIRS, {"holders": encode_rows([(item,) for item in task_run_ids])})
    # Where somebody waits who is being changed by another transaction, the key stays where it is for a moment.
    done = [(row.id,) for row in found if row.heir is not None or row.waiting is None]
    if done:
        await transaction.run(_RELEASE, {"chosen": encode_rows(done)})
    heirs = [row.heir for row in found if row.heir is not None]
    return Passed(await _grant(transaction, heirs) if heirs else 0, len(found) - len(done))


async def _grant(transaction: Transaction, task_run_ids: Sequence[str]) -> int:
    return len(await transaction.rows(_GRANT, {"chosen": encode_rows([(item,) for item in task_run_ids])}))


_LEFT = (
    select(_t.id)
    .where(
        _t.key_state == constant(KeyState.HELD),
        _t.status != constant("queued"),
        _t.status != constant("running"),
    )
    .order_by(_t.id)
    .limit(literal_column("500"))
)


async def find_left(transaction: Transaction) -> list[str]:
    """Task runs that have ended and still hold their key."""
    return [row.id for row in await transaction.rows(_LEFT)]


_IN_TURN = "keys"
_FIRST = insert_new(
    leases,
    {
        "name": literal(_IN_TURN),
        "holder": literal(NOTHING, Id()),
        "term": literal(0, Integer()),
        "acquired_at": NOW,
        "expires_at": NOW,
    },
)
_TAKE_TURN = select(leases.c.name).where(leases.c.name == constant(_IN_TURN)).with_for_update(skip_locked=True)


async def take_turn(transaction: Transaction) -> bool:
    """Whether nobody else gives out keys before this transaction has ended."""
    return await transaction.row(_TAKE_TURN) is not None or (
        await transaction.run(_FIRST) > 0 and await transaction.row(_TAKE_TURN) is not None
    )


_NEW = (
    select(_t.id, _t.namespace, _t.concurrency_key)
    .where(_t.status == constant("queued"), _t.key_state == constant(KeyState.NEW))
    .order_by(_t.claim_rank, _t.id)
    .limit(literal_column("500"))
    .with_for_update(skip_locked=True)
)
_wanted = batch("wanted_keys", namespace=String(200), concurrency_key=String(200))
_holder = select(_holding.c.id).where(
    _holding.c.key_state == constant(KeyState.HELD),
    _holding.c.namespace == _wanted.c.namespace,
    _holding.c.concurrency_key == _wanted.c.concurrency_key,
)
_KEYS = select(
    _wanted.c.namespace,
    _wanted.c.concurrency_key,
    _holder.scalar_subquery().label("holder"),
    # Shared with nobody who could end it.
    _holder.with_for_update(read=True, skip_locked=True).scalar_subquery().label("steady"),
)
_HEIRS_OF_KEYS = select(
    _wanted.c.namespace,
    _wanted.c.concurrency_key,
    _find_waiting(_wanted.c.namespace, _wanted.c.concurrency_key)
    .with_for_update(skip_locked=True)
    .scalar_subquery()
    .label("heir"),
)
_is_new = func.coalesce(_t.key_state, constant("")) == constant(KeyState.NEW)
_SET_WAITING = (
    update(task_runs)
    .values(key_state=constant(KeyState.WAITING))
    .where(within(_t.id, select(_chosen.c.id).scalar_subquery()), _is_new)
)


async def settle(transaction: Transaction) -> Settled:
    """Gives free keys to what has just come for them, and lets the rest wait for who holds them."""
    new = await transaction.rows(_NEW)
    if not new:
        return Settled(0, 0)
    names = sorted({(row.namespace, row.concurrency_key) for row in new})
    found = await transaction.rows(_KEYS, {"wanted_keys": encode_rows(names)})
    # Who holds a key may be ending right now, and has not seen who came: that is looked at again.
    settled = {(row.namespace, row.concurrency_key) for row in found if row.steady is not None}
    free = [(row.namespace, row.concurrency_key) for row in found if row.holder is None]
    heirs = await transaction.rows(_HEIRS_OF_KEYS, {"wanted_keys": encode_rows(free)}) if free else []
    given = [row for row in heirs if row.heir is not None]
    settled |= {(row.namespace, row.concurrency_key) for row in given}
    granted = await _grant(transaction, [row.heir for row in given]) if given else 0
    waiting = [(row.id,) for row in new if (row.namespace, row.concurrency_key) in settled]
    if waiting:
        await transaction.run(_SET_WAITING, {"chosen": encode_rows(waiting)})
    return Settled(granted, len(waiting))


_ANY_NEW = select(_t.id).where(_t.status == constant("queued"), _t.key_state == constant(KeyState.NEW)).limit(1)
_NEXT_DUE = select(case((or_(_ANY_NEW.exists(), _LEFT.limit(1).exists()), NOW)))


async def read_next_due(transaction: Transaction) -> Any:
    """The time now if there are keys to be given out, else None."""
    row = await transaction.row(_NEXT_DUE)
    return row[0] if row else None
