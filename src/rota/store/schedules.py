"""Statements on schedules: saving, finding those that are due, moving their cursors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import (
    Boolean,
    Float,
    Integer,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)

from rota.store.database import Transaction
from rota.store.dialect import NOTHING, NOW, Id, Instant, add_seconds, among, batch, flag, within
from rota.store.encoding import EPOCH, encode_rows, to_microseconds
from rota.store.tables import schedules, workflows

_s = schedules.c


class ScheduleRow(NamedTuple):
    id: str
    namespace: str
    workflow_id: str
    position: int
    spec: dict[str, Any]
    is_active: bool
    is_paused: bool
    paused_reason: str
    resumed_at: datetime | None
    missed_at: datetime | None
    anchor_at: datetime
    cursor_at: datetime
    next_due_at: datetime | None
    version: int


_COLUMNS = [_s[name] for name in ScheduleRow._fields]
_OF_WORKFLOW = select(*_COLUMNS).where(_s.workflow_id == bindparam("owner", type_=Id())).order_by(_s.position)
_LOCK_OF_WORKFLOW = _OF_WORKFLOW.with_for_update(key_share=True)


async def read_schedules(transaction: Transaction, workflow_id: str, *, locks: bool = False) -> list[ScheduleRow]:
    """The schedules of a workflow, held until the commit if asked."""
    statement = _LOCK_OF_WORKFLOW if locks else _OF_WORKFLOW
    return [ScheduleRow(*row) for row in await transaction.rows(statement, {"owner": workflow_id})]


_BY_ID = select(*_COLUMNS).where(_s.id == bindparam("wanted_id", type_=Id()))
_LOCK_BY_ID = _BY_ID.with_for_update(key_share=True)


async def find_schedule(transaction: Transaction, schedule_id: str, *, locks: bool = False) -> ScheduleRow | None:
    """A schedule, held until the commit if asked."""
    row = await transaction.row(_LOCK_BY_ID if locks else _BY_ID, {"wanted_id": schedule_id})
    return ScheduleRow(*row) if row else None


_owners = batch("owning_workflows", id=Id())
_LOCK_OF_WORKFLOWS = (
    select(*_COLUMNS)
    .where(within(_s.workflow_id, select(_owners.c.id).scalar_subquery()))
    .order_by(_s.workflow_id, _s.position)
    .with_for_update(key_share=True)
)


async def lock_of_workflows(transaction: Transaction, workflow_ids: Sequence[str]) -> list[ScheduleRow]:
    """The schedules of several workflows, held until the commit."""
    parameters = {"owning_workflows": encode_rows([(item,) for item in sorted(set(workflow_ids))])}
    return [ScheduleRow(*row) for row in await transaction.rows(_LOCK_OF_WORKFLOWS, parameters)]


_DUE = (
    select(*_COLUMNS, workflows.c.current_version_id)
    .join(workflows, workflows.c.id == _s.workflow_id)
    .where(flag(_s.is_active), _s.next_due_at <= NOW)
    .order_by(_s.next_due_at)
    .limit(bindparam("at_most", type_=Integer()))
    .with_for_update(of=schedules, skip_locked=True, key_share=True)
)


async def lock_due(transaction: Transaction, limit: int) -> list[tuple[ScheduleRow, str | None]]:
    """Schedules that are due, with their workflow's current version. Those that another node has are left out."""
    rows = await transaction.rows(_DUE, {"at_most": limit})
    return [(ScheduleRow(*row[:-1]), row[-1]) for row in rows]


_COMING = (
    select(*_COLUMNS, workflows.c.current_version_id)
    .join(workflows, workflows.c.id == _s.workflow_id)
    .where(
        flag(_s.is_active),
        _s.next_due_at <= add_seconds(NOW, bindparam("slot_seconds", type_=Float())),
        _s.next_due_at >= bindparam("due_from", type_=Instant()),
        or_(_s.next_due_at > bindparam("due_from", type_=Instant()), _s.id > bindparam("from_id", type_=Id())),
    )
    .order_by(_s.next_due_at, _s.id)
    .limit(bindparam("at_most", type_=Integer()))
)


async def read_coming(
    transaction: Transaction, slot_seconds: float, place: tuple[datetime, str] | None, limit: int
) -> list[tuple[ScheduleRow, str | None]]:
    """Schedules that are due within the slot, after `place`, with their workflow's current version."""
    due_from, from_id = place or (EPOCH, NOTHING)
    parameters = {"slot_seconds": slot_seconds, "due_from": due_from, "from_id": from_id, "at_most": limit}
    return [(ScheduleRow(*row[:-1]), row[-1]) for row in await transaction.rows(_COMING, parameters)]


# A single instant and an interval mean the same in every edition of the zones.
_ZONED = (
    select(*_COLUMNS)
    .where(_s.id > bindparam("after_id", type_=Id()), type_coerce(_s.spec, Text()).contains('"schedule_cron"'))
    .order_by(_s.id)
    .limit(bindparam("at_most", type_=Integer()))
)


async def read_zoned(transaction: Transaction, after_id: str | None, limit: int) -> list[ScheduleRow]:
    """Schedules that go by a wall clock, in the order of their ids."""
    parameters = {"after_id": after_id or NOTHING, "at_most": limit}
    return [ScheduleRow(*row) for row in await transaction.rows(_ZONED, parameters)]


_held = batch("held_schedules", id=Id())
_LOCK_MANY = (
    select(*_COLUMNS)
    .where(within(_s.id, select(_held.c.id).scalar_subquery()))
    # One that is held is being decided or edited right now, and that by the rules of today.
    .with_for_update(skip_locked=True, key_share=True)
)


async def lock_schedules(transaction: Transaction, schedule_ids: Sequence[str]) -> list[ScheduleRow]:
    """Those of these schedules that nobody else holds, held until the commit."""
    parameters = {"held_schedules": encode_rows([(schedule_id,) for schedule_id in schedule_ids])}
    return [ScheduleRow(*row) for row in await transaction.rows(_LOCK_MANY, parameters)]


_NEXT_DUE = select(func.min(_s.next_due_at), NOW).where(flag(_s.is_active), _s.next_due_at.is_not(None))


async def read_next_due(transaction: Transaction) -> tuple[datetime | None, datetime]:
    """When the next schedule is due, and the time now."""
    (row,) = await transaction.rows(_NEXT_DUE)
    return row[0], row[1]


_READ_NOW = select(NOW)


async def read_now(transaction: Transaction) -> datetime:
    """The database's time."""
    ((moment,),) = await transaction.rows(_READ_NOW)
    return cast(datetime, moment)


class Move(NamedTuple):
    """Where a schedule stands after a round: the last tick that was decided, when to look again, and the newest tick
    that was missed in this round."""

    schedule_id: str
    cursor_at: datetime
    next_due_at: datetime | None
    missed_at: datetime | None = None


_cursors = batch("moved_cursors", id=Id(), cursor_at=Instant(), next_due_at=Instant(), missed_at=Instant())
_MOVE_CURSORS = (
    update(schedules)
    .values(
        cursor_at=_cursors.c.cursor_at,
        next_due_at=_cursors.c.next_due_at,
        missed_at=func.coalesce(_cursors.c.missed_at, _s.missed_at),
    )
    .where(_s.id == _cursors.c.id, among(_s.id, select(_cursors.c.id).scalar_subquery()))
)


async def move_cursors(transaction: Transaction, moves: Sequence[Move]) -> None:
    """Writes what a round has decided."""
    rows = [
        (
            move.schedule_id,
            to_microseconds(move.cursor_at),
            to_microseconds(move.next_due_at),
            to_microseconds(move.missed_at),
        )
        for move in moves
    ]
    await transaction.run(_MOVE_CURSORS, {"moved_cursors": encode_rows(rows)})


_new = batch(
    "new_schedules",
    id=Id(),
    workflow_id=Id(),
    position=Integer(),
    spec=Text(),
    is_active=Boolean(),
    anchor_at=Instant(),
    cursor_at=Instant(),
    next_due_at=Instant(),
)
_INSERT = insert(schedules).from_select(
    [*_new.c.keys(), "namespace", "created_at", "updated_at"],
    select(*_new.c, workflows.c.namespace, NOW, NOW).join(workflows, workflows.c.id == _new.c.workflow_id),
)


async def insert_schedules(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Creates schedules: id, workflow, position, spec as JSON text, is_active, anchor, cursor, next wake-up."""
    await transaction.run(_INSERT, {"new_schedules": encode_rows(rows)})


_gone = batch("gone_schedules", id=Id())
_DELETE = delete(schedules).where(within(_s.id, select(_gone.c.id).scalar_subquery()))


async def delete_schedules(transaction: Transaction, schedule_ids: Sequence[str]) -> None:
    await transaction.run(_DELETE, {"gone_schedules": encode_rows([(item,) for item in schedule_ids])})


_changed = batch(
    "changed_schedules",
    id=Id(),
    spec=Text(),
    is_active=Boolean(),
    anchor_at=Instant(),
    cursor_at=Instant(),
    next_due_at=Instant(),
)
_CHANGE = (
    update(schedules)
    .values(
        spec=_changed.c.spec,
        is_active=_changed.c.is_active,
        anchor_at=_changed.c.anchor_at,
        cursor_at=_changed.c.cursor_at,
        next_due_at=_changed.c.next_due_at,
        version=_s.version + 1,
        updated_at=NOW,
    )
    .where(_s.id == _changed.c.id, among(_s.id, select(_changed.c.id).scalar_subquery()))
)


async def change_schedules(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Replaces spec, is_active, anchor, cursor and next wake-up of schedules."""
    await transaction.run(_CHANGE, {"changed_schedules": encode_rows(rows)})


_pauses = batch("pauses", id=Id(), is_paused=Boolean(), paused_reason=Text())
_PAUSE = (
    update(schedules)
    .values(
        is_paused=_pauses.c.is_paused,
        paused_reason=_pauses.c.paused_reason,
        resumed_at=case((_pauses.c.is_paused, _s.resumed_at), else_=NOW),
    )
    .where(_s.id == _pauses.c.id, among(_s.id, select(_pauses.c.id).scalar_subquery()))
)


async def set_paused(transaction: Transaction, pauses: Sequence[tuple[str, bool, str]]) -> None:
    """Writes (schedule id, whether it is paused itself, why)."""
    await transaction.run(_PAUSE, {"pauses": encode_rows(pauses)})


_places = batch("places", id=Id(), position=Integer())
_PUT_ASIDE = update(schedules).values(position=-1 - _s.position).where(_s.workflow_id == bindparam("owner", type_=Id()))
_PLACE = (
    update(schedules)
    .values(position=_places.c.position)
    .where(_s.id == _places.c.id, among(_s.id, select(_places.c.id).scalar_subquery()))
)


async def place_schedules(transaction: Transaction, workflow_id: str, places: Sequence[tuple[str, int]]) -> None:
    """Gives all schedules of a workflow their positions. No two may share one, not even on the way."""
    await transaction.run(_PUT_ASIDE, {"owner": workflow_id})
    await transaction.run(_PLACE, {"places": encode_rows(places)})
