"""prepare: reads ahead what will be due soon, so that at its instant nothing is left but to write the runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.schedule_plan import plan_fires
from rota.engine.core import Core
from rota.store import schedules
from rota.store.database import Transaction

# Small, because others of this process wait meanwhile.
BATCH = 100


@dataclass(frozen=True, slots=True)
class Prepared:
    """How many schedules were looked at, and the place (next due time, id) from which to go on."""

    count: int
    place: tuple[datetime, str] | None = None


async def prepare(
    core: Core, transaction: Transaction, slot_seconds: float, place: tuple[datetime, str] | None
) -> Prepared:
    """One batch of the schedules that are due within the slot: their rules are parsed, their next ticks found and the
    versions that they run read, into memories of bounded size. Nothing depends on its having been done."""
    coming = await schedules.read_coming(transaction, slot_seconds, place, BATCH)
    if not coming:
        return Prepared(0, place)
    await core.find_versions(transaction, [version_id for _row, version_id in coming if version_id])
    for row, _version_id in coming:
        if row.next_due_at is not None:
            plan_fires(
                core.read_schedule(row),
                seed=row.id,
                anchor=row.anchor_at,
                cursor=row.cursor_at,
                now=row.next_due_at,
                horizon=row.next_due_at,
            )
    last = coming[-1][0]
    return Prepared(len(coming), None if last.next_due_at is None else (last.next_due_at, last.id))
