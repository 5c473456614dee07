"""fire: decides what is due of the schedules, and creates the runs. Any number of nodes may fire at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.domain.schedule_plan import Fire, Plan, plan_fires
from rota.engine.core import Core
from rota.engine.overlap import DueSchedule, Resolved, resolve_overlaps
from rota.engine.record import note_schedule, record
from rota.engine.submit import RunRequest, SubmittedRun, submit
from rota.store import schedules
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.schedules import Move, ScheduleRow

BATCH = 1000
MISSED = ("misfire", "over_catch_up_limit")
# A decision names at most so many runs.
RUNS_NAMED = 20


@dataclass(frozen=True, slots=True)
class FireReport:
    """What one round of firing did."""

    schedules: int = 0
    runs: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class _Round:
    """One schedule in this round."""

    row: ScheduleRow
    plan: Plan
    due: DueSchedule
    has_tasks: bool


async def fire(core: Core, transaction: Transaction) -> FireReport:
    """Fires the schedules that are due. Cursor and runs move in one transaction, so each tick is decided once."""
    found = await schedules.lock_due(transaction, BATCH)
    if not found:
        return FireReport()
    now = await schedules.read_now(transaction)
    rounds = [_open_round(core, row, version_id, now) for row, version_id in found]
    resolved = await resolve_overlaps(core, transaction, [item.due for item in rounds])
    requests = [request for item in rounds for request in _request(item, resolved[item.row.id])]
    submitted = await submit(core, transaction, requests) if requests else []
    answers = _group(requests, submitted)
    await schedules.move_cursors(transaction, [_move(item) for item in rounds])
    changes = [change for item in rounds for change in _note(item, resolved[item.row.id], answers.get(item.row.id, ()))]
    await record(core, transaction, changes)
    skipped = sum(
        sum(skip.count for skip in item.plan.skipped) + len(resolved[item.row.id].decision.skipped) for item in rounds
    )
    return FireReport(len(found), sum(run.id is not None for run in submitted), skipped)


def _open_round(core: Core, row: ScheduleRow, version_id: str | None, now: datetime) -> _Round:
    plan = _plan(core, row, now)
    fires = plan.fires if version_id is not None else ()
    return _Round(row, plan, DueSchedule(row, core.read_schedule(row), fires), version_id is not None)


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


def _request(item: _Round, resolved: Resolved) -> Iterator[RunRequest]:
    spec = item.due.spec
    is_serial = spec.overlap != "allow"
    for place, tick in enumerate(resolved.decision.runs):
        yield RunRequest(
            item.row.workflow_id,
            trigger="schedule",
            logical_at=tick.logical_at,
            schedule_id=item.row.id,
            tells_refusal=True,
            is_serial=is_serial,
            is_held_back=is_serial and (resolved.is_held_back or place > 0),
            is_watched=spec.pause_after_failures is not None,
        )


def _group(requests: Sequence[RunRequest], submitted: Sequence[SubmittedRun]) -> dict[str, list[SubmittedRun]]:
    """What has become of the requests, by schedule."""
    answers: dict[str, list[SubmittedRun]] = {}
    for request, run in zip(requests, submitted, strict=True):
        answers.setdefault(str(request.schedule_id), []).append(run)
    return answers


def _move(item: _Round) -> Move:
    missed = [skip.last_at for skip in item.plan.skipped if skip.reason in MISSED]
    return Move(item.row.id, item.plan.cursor, item.plan.next_due_at, max(missed, default=None))


def _note(item: _Round, resolved: Resolved, answers: Sequence[SubmittedRun]) -> Iterator[Change]:
    for skip in item.plan.skipped:
        word = "missed" if skip.reason in MISSED else "skipped"
        details = _span(skip.count, skip.first_at, skip.last_at) | {"reason": skip.reason}
        yield note_schedule(item.row, word, details | {"is_count_exact": skip.is_count_exact})
    if not item.has_tasks and item.plan.fires:
        yield note_schedule(item.row, "skipped", _span_of(item.plan.fires) | {"reason": "no_tasks"})
    decision = resolved.decision
    others = {"overlap": item.due.spec.overlap, "others": list(resolved.others[:RUNS_NAMED])} if resolved.others else {}
    if decision.skipped:
        yield note_schedule(item.row, "skipped", _span_of(decision.skipped) | {"reason": decision.reason} | others)
    if decision.ending is not None:
        yield note_schedule(item.row, "replaced", {"ending": decision.ending} | others)
    made = [tick for tick, run in zip(decision.runs, answers, strict=True) if run.id is not None]
    if made:
        word = "buffered" if resolved.is_held_back else "fired"
        runs = [run.id for run in answers if run.id is not None][:RUNS_NAMED]
        yield note_schedule(item.row, word, _span_of(made) | {"runs": runs} | others)
    for tick, run in zip(decision.runs, answers, strict=True):
        # Parameters that do not fit on that day: nobody is there to be told.
        if run.refusal is not None:
            yield note_schedule(item.row, "skipped", _span_of([tick]) | {"reason": run.refusal.detail})


def _span_of(fires: Sequence[Fire]) -> dict[str, Any]:
    notes = [fire.note for fire in fires if fire.note]
    return _span(len(fires), fires[0].logical_at, fires[-1].logical_at) | ({"note": notes[0]} if notes else {})


def _span(count: int, first_at: datetime, last_at: datetime) -> dict[str, Any]:
    return {"count": count, "first_at": first_at.isoformat(), "last_at": last_at.isoformat()}
