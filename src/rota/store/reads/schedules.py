"""Schedules and the decisions about their ticks, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import BigInteger, Integer, Select, bindparam, literal, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, flag
from rota.store.reads.pages import Listing, PageRequest, read_ordered, read_page
from rota.store.schedules import ScheduleRow
from rota.store.tables import schedules, state_history, workflows

_s = schedules.c
_h = state_history.c
ScheduleState = Literal["upcoming", "late", "missed", "paused", "finished"]
# Due for longer than this and not decided yet: no scheduler is at work, or none keeps up.
LATE_SECONDS = 10.0

_COLUMNS = [_s[name] for name in ScheduleRow._fields]
_SCHEDULES: Select[Any] = select(*_COLUMNS, workflows.c.name.label("workflow")).join_from(
    schedules, workflows, workflows.c.id == _s.workflow_id
)


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules are wanted."""

    namespace: str
    state: ScheduleState | None = None
    workflow_id: str | None = None
    # For `missed`: how far back.
    within_seconds: float = 86_400.0


async def list_schedules(transaction: Transaction, wanted: ScheduleFilter, page: PageRequest) -> Listing:
    """Schedules, the newest first; those that are upcoming or late by their next time, the nearest first."""
    statement = _SCHEDULES.where(_s.namespace == wanted.namespace)
    if wanted.workflow_id is not None:
        statement = statement.where(_s.workflow_id == wanted.workflow_id)
    statement = _narrow(statement, wanted)
    if wanted.state in ("upcoming", "late"):
        return await read_ordered(transaction, statement, [_s.next_due_at, _s.id], page)
    return await read_page(transaction, statement, _s.id, page)


def _narrow(statement: Select[Any], wanted: ScheduleFilter) -> Select[Any]:
    late_at = add_seconds(NOW, literal(-LATE_SECONDS))
    conditions: dict[str, Sequence[Any]] = {
        "upcoming": (flag(_s.is_active), _s.next_due_at.is_not(None)),
        "late": (flag(_s.is_active), _s.next_due_at < late_at),
        "missed": (_s.missed_at >= add_seconds(NOW, literal(-wanted.within_seconds)),),
        "paused": (_s.is_active.is_(False),),
        "finished": (flag(_s.is_active), _s.next_due_at.is_(None)),
    }
    return statement.where(*conditions[wanted.state]) if wanted.state is not None else statement


_ONE = _SCHEDULES.where(_s.id == bindparam("wanted_id", type_=Id()), _s.namespace == bindparam("wanted_namespace"))


async def read_schedule(transaction: Transaction, namespace: str, schedule_id: str) -> Any | None:
    """A schedule with the name of its workflow."""
    return await transaction.row(_ONE, {"wanted_id": schedule_id, "wanted_namespace": namespace})


_DECISIONS = (
    select(_h.seq, _h.new_state.label("decision"), _h.changed_at.label("at"), _h.metadata.label("details"))
    .where(
        _h.root_id == bindparam("root", type_=Id()),
        _h.entity_type == "schedule",
        _h.seq < bindparam("before_seq", type_=BigInteger()),
    )
    .order_by(_h.seq.desc())
    .limit(bindparam("at_most", type_=Integer()))
)


async def read_decisions(transaction: Transaction, schedule_id: str, before_seq: int, limit: int) -> Sequence[Any]:
    """What was decided about a schedule's ticks, the newest first."""
    return await transaction.rows(_DECISIONS, {"root": schedule_id, "before_seq": before_seq, "at_most": limit})
