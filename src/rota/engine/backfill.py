"""backfill: makes the runs of past ticks, step by step, each tick once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rota.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from rota.domain.schedule import parse_schedule, schedule_to_dict
from rota.domain.schedule_ticks import ScheduleTicks, Tick
from rota.engine.core import Core
from rota.engine.record import record
from rota.engine.submit import RunRequest, submit
from rota.store import backfills, schedules
from rota.store.backfills import BackfillRow
from rota.store.database import Transaction
from rota.store.definitions import WorkflowRow
from rota.store.encoding import clean_text, encode_json, to_microseconds
from rota.store.history import Change
from rota.store.schedules import ScheduleRow

# Backfills looked at by one step, and ticks decided for each.
BATCH = 20
TICKS_PER_STEP = 200
# More ticks than this need a limit that somebody has thought of.
MOST_WITHOUT_LIMIT = 10_000
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """Asks for the runs of all ticks from `from_at` to `until_at`, both included."""

    from_at: datetime
    until_at: datetime
    schedule_id: str | None = None
    is_backward: bool = False
    is_only_missing: bool = True
    max_active: int = 1
    max_runs: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a request comes to: how many ticks there are (None: more than are counted), and its first and last."""

    schedule_id: str
    count: int | None
    first_at: datetime | None
    last_at: datetime | None


async def plan_backfill(
    core: Core, transaction: Transaction, workflow: WorkflowRow, request: BackfillRequest
) -> BackfillPlan:
    """Checks a request and counts its ticks. Raises InvalidInput with the field and what to send."""
    row = await _find_schedule(transaction, workflow, request.schedule_id)
    if request.until_at < request.from_at:
        raise InvalidInput.of([FieldError("to", "lies before from; send a later instant, or an earlier from")])
    if request.until_at > await schedules.read_now(transaction):
        raise InvalidInput.of([FieldError("to", "lies in the future: what is to come is the schedule's own to fire")])
    ticks = ScheduleTicks(core.read_schedule(row), row.id, row.anchor_at)
    found = ticks.take(request.from_at - _MOMENT, request.until_at, MOST_WITHOUT_LIMIT + 1, is_open=True)
    count = len(found) if len(found) <= MOST_WITHOUT_LIMIT else None
    if count is None and request.max_runs is None:
        reason = f"is needed: the range has more than {MOST_WITHOUT_LIMIT:,} ticks; send it, or a shorter range"
        raise InvalidInput.of([FieldError("max_runs", reason)])
    last = ticks.take_newest(request.from_at - _MOMENT, request.until_at, 1, is_open=True)
    return BackfillPlan(row.id, count, found[0].at if found else None, last[-1].at if last else None)


async def create_backfill(core: Core, transaction: Transaction, workflow: WorkflowRow, request: BackfillRequest) -> str:
    """Saves a backfill with the rule and the version of this moment; its runs are made by `step_backfills`."""
    plan = await plan_backfill(core, transaction, workflow, request)
    if workflow.current_version_id is None:
        raise Conflict(f"workflow {workflow.name} has no tasks yet: add tasks before it is run", code="no_tasks")
    row = await _find_schedule(transaction, workflow, plan.schedule_id)
    backfill_id = core.new_ids(1)[0]
    await backfills.insert_backfill(
        transaction,
        {
            "id": backfill_id,
            "namespace": workflow.namespace,
            "workflow_id": workflow.id,
            "schedule_id": row.id,
            "version_id": workflow.current_version_id,
            "spec": schedule_to_dict(core.read_schedule(row)) | {"seed": row.id},
            "anchor_at": row.anchor_at,
            "from_at": request.from_at,
            "until_at": request.until_at,
            "is_backward": request.is_backward,
            "is_only_missing": request.is_only_missing,
            "max_active": request.max_active,
            "max_runs": request.max_runs,
            "params": dict(request.params),
            "cursor_at": request.until_at if request.is_backward else request.from_at - _MOMENT,
            "tick_count": plan.count,
        },
    )
    await record(core, transaction, [_note(backfill_id, workflow.namespace, None, "running")])
    return backfill_id


async def _find_schedule(transaction: Transaction, workflow: WorkflowRow, schedule_id: str | None) -> ScheduleRow:
    rows = await schedules.read_schedules(transaction, workflow.id)
    if schedule_id is not None:
        rows = [row for row in rows if row.id == schedule_id]
    if len(rows) == 1:
        return rows[0]
    if schedule_id is not None:
        reason = f"is no schedule of {workflow.name}"
    else:
        reason = f"is needed: {workflow.name} has {len(rows)} schedules" if rows else f"{workflow.name} has no schedule"
    raise InvalidInput.of([FieldError("schedule_id", reason)])


async def step_backfills(core: Core, transaction: Transaction) -> int:
    """One step of each backfill that goes on, within its limit of active runs; how much was done.

    The cursor moves in the transaction that makes the runs, and (backfill, logical time) is unique.
    """
    going = await backfills.lock_going(transaction, BATCH)
    if not going:
        return 0
    open_counts = await backfills.count_open(transaction, [row.id for row in going])
    return sum([await _step(core, transaction, row, open_counts.get(row.id, 0)) for row in going])


async def _step(core: Core, transaction: Transaction, row: BackfillRow, open_count: int) -> int:
    left = TICKS_PER_STEP if row.max_runs is None else min(TICKS_PER_STEP, row.max_runs - row.created_count)
    room = min(left, row.max_active - open_count)
    ticks = _take(row, TICKS_PER_STEP) if left > 0 else []
    if not ticks:
        if open_count:
            return 0
        await backfills.set_status(transaction, row.id, "done")
        await record(core, transaction, [_note(row.id, row.namespace, row.status, "done")])
        return 1
    if room <= 0:
        return 0
    chosen, skipped, cursor_at = await _choose(transaction, row, ticks, room)
    requests = [
        RunRequest(
            row.workflow_id,
            trigger="backfill",
            logical_at=tick.at,
            params=row.params,
            version_id=row.version_id,
            backfill_id=row.id,
            tells_refusal=True,
        )
        for tick in chosen
    ]
    submitted = await submit(core, transaction, requests) if requests else []
    created = sum(run.id is not None for run in submitted)
    await backfills.move_backfill(
        transaction, row.id, cursor_at, created=created, skipped=skipped + len(requests) - created
    )
    return len(requests) + skipped


def _take(row: BackfillRow, count: int) -> Sequence[Tick]:
    """The next ticks in the backfill's direction."""
    rule = {name: value for name, value in row.spec.items() if name != "seed"}
    seed = str(row.spec["seed"])
    ticks = ScheduleTicks(parse_schedule(rule, now=None, seed=seed), seed, row.anchor_at)
    if row.is_backward:
        return ticks.take_newest(row.from_at - _MOMENT, row.cursor_at, count, is_open=True)[::-1]
    return ticks.take(row.cursor_at, row.until_at, count, is_open=True)


async def _choose(
    transaction: Transaction, row: BackfillRow, ticks: Sequence[Tick], room: int
) -> tuple[list[Tick], int, datetime]:
    """Of these ticks those that get a run now, how many before the last of them do not, and the new cursor."""
    present: set[datetime] = set()
    if row.is_only_missing:
        moments = [to_microseconds(tick.at) or 0 for tick in ticks]
        present = await backfills.find_present(transaction, row.workflow_id, moments)
    chosen: list[Tick] = []
    skipped = 0
    cursor_at = row.cursor_at
    for tick in ticks:
        if tick.at in present:
            skipped += 1
        elif len(chosen) < room:
            chosen.append(tick)
        else:
            break
        cursor_at = tick.at - _MOMENT if row.is_backward else tick.at
    return chosen, skipped, cursor_at


async def change_backfill(
    core: Core, transaction: Transaction, namespace: str, backfill_id: str, status: str
) -> list[str]:
    """Pauses, resumes or cancels a backfill; for a cancel, the runs that are to be cancelled next."""
    row = await backfills.lock_backfill(transaction, namespace, backfill_id)
    if row is None:
        raise NotFound(f"there is no backfill {backfill_id}")
    if row.status in ("done", "cancelled") and row.status != status:
        raise Conflict(f"backfill {backfill_id} is {row.status} already")
    if row.status != status:
        await backfills.set_status(transaction, backfill_id, status)
        await record(core, transaction, [_note(backfill_id, namespace, row.status, status)])
    return await backfills.find_open_runs(transaction, backfill_id) if status == "cancelled" else []


def _note(backfill_id: str, namespace: str, old: str | None, new: str) -> Change:
    return Change("backfill", backfill_id, backfill_id, clean_text(namespace), old, new, encode_json({}))
