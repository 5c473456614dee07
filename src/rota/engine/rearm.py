"""rearm: finds the next ticks of cron schedules anew, in case the rules of their zones have changed since."""

from __future__ import annotations

from dataclasses import dataclass

from rota.domain.schedule_plan import plan_fires
from rota.engine.core import Core
from rota.engine.record import note_schedule, record
from rota.store import schedules
from rota.store.database import Transaction
from rota.store.schedules import Move, ScheduleRow
from rota.store.wakeups import Topic

BATCH = 500


@dataclass(frozen=True, slots=True)
class Rearmed:
    """How many schedules were looked at and how many moved, and the id after which to go on (None: at the end)."""

    seen: int
    moved: int
    after_id: str | None


async def rearm(core: Core, transaction: Transaction, after_id: str | None) -> Rearmed:
    """One batch, in the order of the ids. The cursor stays: what is decided is decided, and nothing fires twice."""
    rows = await schedules.read_zoned(transaction, after_id, BATCH)
    stale = [row.id for row in rows if _find_next(core, row) != row]
    moves = []
    changes = []
    for row in await schedules.lock_schedules(transaction, stale) if stale else []:
        moved = _find_next(core, row)
        if moved != row:
            moves.append(Move(row.id, row.cursor_at, moved.next_due_at))
            due = [at.isoformat() if at else None for at in (row.next_due_at, moved.next_due_at)]
            changes.append(note_schedule(row, "rearmed", {"reason": "zone_rules", "from": due[0], "to": due[1]}))
    if moves:
        await schedules.move_cursors(transaction, moves)
        await record(core, transaction, changes)
        transaction.wake(Topic.SCHEDULES)
    return Rearmed(len(rows), len(moves), rows[-1].id if len(rows) == BATCH else None)


def _find_next(core: Core, row: ScheduleRow) -> ScheduleRow:
    """The row with the wake-up that its cursor and the rules of today lead to."""
    if not row.is_active:
        return row
    plan = plan_fires(
        core.read_schedule(row),
        seed=row.id,
        anchor=row.anchor_at,
        cursor=row.cursor_at,
        now=row.cursor_at,
        horizon=row.cursor_at,
    )
    return row._replace(next_due_at=plan.next_due_at)
