"""Statements on schedules: saving, finding those that are due, moving their cursors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import Boolean, Integer, Text, bindparam, delete, func, insert, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, among, batch, flag, within
from rota.store.encoding import encode_rows, to_microseconds
from rota.store.tables import schedules, workflows

_s = schedules.c


class ScheduleRow(NamedTuple):
    id: str
    namespace: str
    workflow_id: str
    position: int
    spec: dict[str, Any]
    is_active: bool
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


async def find_schedule(transaction: Transaction, schedule_id: str) -> ScheduleRow | None:
    row = await transaction.row(_BY_ID, {"wanted_id": schedule_id})
    return ScheduleRow(*row) if row else None


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


_cursors = batch("moved_cursors", id=Id(), cursor_at=Instant(), next_due_at=Instant())
_MOVE_CURSORS = (
    update(schedules)
    .values(cursor_at=_cursors.c.cursor_at, next_due_at=_cursors.c.next_due_at)
    .where(_s.id == _cursors.c.id, among(_s.id, select(_cursors.c.id).scalar_subquery()))
)


async def move_cursors(transaction: Transaction, moves: Sequence[tuple[str, datetime, datetime | None]]) -> None:
    """Writes (schedule id, last decided tick, next wake-up)."""
    await transaction.run(
        _MOVE_CURSORS,
        {
            "moved_cursors": encode_rows(
                [(row_id, to_microseconds(cursor), to_microseconds(due)) for row_id, cursor, due in moves]
            )
        },
    )


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
