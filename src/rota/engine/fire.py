"""fire: decides what is due of the schedules, and creates the runs. Any number of nodes may fire at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.schedule_plan import Plan, plan_fires
from rota.engine.core import Core
from rota.engine.record import record
from rota.engine.submit import RunRequest, SubmittedRun, submit
from rota.store import schedules
from rota.store.database import Transaction
from rota.store.encoding import encode_json
from rota.store.history import Change
from rota.store.schedules import ScheduleRow

BATCH = 1000


@dataclass(frozen=True, slots=True)
class FireReport:
    """What one round of firing did."""

    schedules: int = 0
    runs: int = 0
    skipped: int = 0


async def fire(core: Core, transaction: Transaction) -> FireReport:
    """Fires the schedules that are due. Cursor and runs move in one transaction, so each tick is decided once."""
    due = await schedules.lock_due(transaction, BATCH)
    if not due:
        return FireReport()
    now = await schedules.read_now(transaction)
    requests: list[RunRequest] = []
    rows: list[ScheduleRow] = []
    moves: list[tuple[str, datetime, datetime | None]] = []
    changes: list[Change] = []
    for row, version_id in due:
        plan = _plan(core, row, now)
        moves.append((row.id, plan.cursor, plan.next_due_at))
        changes += _note_skips(row, plan)
        if version_id is not None:
            rows += [row] * len(plan.fires)
            requests += [
                RunRequest(
                    row.workflow_id,
                    trigger="schedule",
                    logical_at=fire.logical_at,
                    schedule_id=row.id,
                    tells_refusal=True,
                )
                for fire in plan.fires
            ]
        else:
            changes.append(_note(row, "skipped", {"reason": "the workflow has no tasks", "count": len(plan.fires)}))
    submitted = await submit(core, transaction, requests) if requests else []
    changes += _note_refusals(rows, requests, submitted)
    await schedules.move_cursors(transaction, moves)
    await record(core, transaction, changes)
    return FireReport(len(due), sum(run.id is not None for run in submitted), len(changes))


def _plan(core: Core, row: ScheduleRow, now: datetime) -> Plan:
    spec = core.read_schedule(row)
    plan = plan_fires(spec, seed=row.id, anchor=row.anchor_at, cursor=row.cursor_at, now=now, horizon=now)
    early = [fire for fire in plan.fires if fire.due_at > now]
    if not early:
        return plan
    # Jitter puts some off: they are decided when their time comes.
    ready = tuple(fire for fire in plan.fires if fire.logical_at < early[0].logical_at)
    cursor = ready[-1].logical_at if ready else row.cursor_at
    return Plan(ready, plan.skipped, cursor, early[0].due_at)


def _note_skips(row: ScheduleRow, plan: Plan) -> Sequence[Change]:
    return [
        _note(
            row,
            "skipped",
            {
                "reason": skip.reason,
                "count": skip.count,
                "is_count_exact": skip.is_count_exact,
                "first_at": skip.first_at.isoformat(),
                "last_at": skip.last_at.isoformat(),
            },
        )
        for skip in plan.skipped
    ]


def _note_refusals(
    rows: Sequence[ScheduleRow], requests: Sequence[RunRequest], submitted: Sequence[SubmittedRun]
) -> Sequence[Change]:
    """Ticks whose parameters do not fit on that day: nobody is there to be told."""
    return [
        _note(row, "skipped", {"reason": run.refusal.detail, "count": 1, "first_at": str(request.logical_at)})
        for row, request, run in zip(rows, requests, submitted, strict=True)
        if run.refusal is not None
    ]


def _note(row: ScheduleRow, decision: str, details: dict[str, Any]) -> Change:
    return Change("schedule", row.id, row.id, row.namespace, None, decision, encode_json(details))
