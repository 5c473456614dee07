"""Schedules are saved, paused and resumed: each of these decides anew from now on, and fires nothing of the past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rota.domain.errors import NotFound
from rota.domain.schedule import ScheduleSpec, initial_cursor, schedule_to_dict
from rota.domain.schedule_plan import plan_fires
from rota.domain.spec import WorkflowSpec
from rota.engine.core import Core
from rota.engine.record import note_schedule, record
from rota.store import definitions, schedules
from rota.store.database import Transaction
from rota.store.encoding import clean_text, encode_json, to_microseconds
from rota.store.schedules import ScheduleRow
from rota.store.wakeups import Topic


async def save_schedules(core: Core, transaction: Transaction, workflow_id: str, spec: WorkflowSpec) -> bool:
    """Makes the schedules of a workflow be those of `spec`; whether anything changed.

    Rules that stay the same keep their schedule with its cursor and its past; changed and new ones start from now.
    """
    existing = await schedules.read_schedules(transaction, workflow_id, locks=True)
    if not existing and not spec.schedules:
        return False
    now = await schedules.read_now(transaction)
    kept = _match(existing, spec.schedules)
    gone = [row.id for row in existing if row not in kept]
    pairs = list(enumerate(zip(spec.schedules, kept, strict=True)))
    changed = [
        arm_schedule(row.id, rule, spec.is_active, now, row)
        for _position, (rule, row) in pairs
        if row is not None and (row.spec != schedule_to_dict(rule) or row.is_active != _goes(row, spec.is_active))
    ]
    fresh = [(position, rule) for position, (rule, row) in pairs if row is None]
    places = [(row, position) for position, (_rule, row) in pairs if row is not None]
    moved = [row for row, position in places if row.position != position]
    if not (gone or changed or fresh or moved):
        return False
    if gone:
        await schedules.delete_schedules(transaction, gone)
    if moved:
        await schedules.place_schedules(transaction, workflow_id, [(row.id, position) for row, position in places])
    if changed:
        await schedules.change_schedules(transaction, changed)
    ids = core.new_ids(len(fresh))
    armed = [arm_schedule(new_id, rule, spec.is_active, now) for new_id, (_, rule) in zip(ids, fresh, strict=True)]
    rows = [(row[0], workflow_id, place, *row[1:]) for row, (place, _) in zip(armed, fresh, strict=True)]
    if rows:
        await schedules.insert_schedules(transaction, rows)
    transaction.wake(Topic.SCHEDULES)
    return True


def _goes(row: ScheduleRow, is_workflow_active: bool) -> bool:
    return is_workflow_active and not row.is_paused


def _match(existing: Sequence[ScheduleRow], rules: Sequence[ScheduleSpec]) -> list[ScheduleRow | None]:
    """For each rule the schedule that it belongs to: the one that says the same, or else the next that is left."""
    same: dict[str, list[ScheduleRow]] = defaultdict(list)
    for row in existing:
        same[encode_json(row.spec)].append(row)
    found: list[ScheduleRow | None] = []
    for rule in rules:
        rows = same[encode_json(schedule_to_dict(rule))]
        found.append(rows.pop(0) if rows else None)
    left = iter([row for row in existing if row not in found])
    return [row if row is not None else next(left, None) for row in found]


def arm_schedule(
    schedule_id: str, rule: ScheduleSpec, is_active: bool, now: datetime, row: ScheduleRow | None = None
) -> tuple[Any, ...]:
    """id, spec, is_active, anchor, cursor and next wake-up of a rule that is decided from now on."""
    document = schedule_to_dict(rule)
    is_same_rule = row is not None and row.spec == document
    anchor = row.anchor_at if row is not None and is_same_rule else now
    cursor = initial_cursor(rule, now)
    plan = plan_fires(rule, seed=schedule_id, anchor=anchor, cursor=cursor, now=cursor, horizon=cursor)
    instants = (to_microseconds(anchor), to_microseconds(cursor), to_microseconds(plan.next_due_at))
    is_going = is_active if row is None else _goes(row, is_active)
    return (schedule_id, encode_json(document), is_going, *instants)


async def set_active(
    core: Core, transaction: Transaction, workflow_id: str, *, is_active: bool, reason: str = ""
) -> bool:
    """Pauses or unpauses a workflow: its schedules stop, and later go on from that moment. Whether it was otherwise."""
    rows = await schedules.read_schedules(transaction, workflow_id, locks=True)
    is_changed = await definitions.set_active(transaction, workflow_id, is_active=is_active)
    going = [row for row in rows if row.is_active != _goes(row, is_active)]
    if going:
        now = await schedules.read_now(transaction)
        armed = [arm_schedule(row.id, core.read_schedule(row), is_active, now, row) for row in going]
        await schedules.change_schedules(transaction, armed)
        word = "resumed" if is_active else "paused"
        why = reason or f"its workflow was {'unpaused' if is_active else 'paused'}"
        await record(core, transaction, [note_schedule(row, word, {"reason": clean_text(why)}) for row in going])
        transaction.wake(Topic.SCHEDULES)
    return is_changed


async def set_schedule_active(
    core: Core, transaction: Transaction, schedule_id: str, *, is_active: bool, reason: str = ""
) -> None:
    """Pauses or unpauses one schedule. It goes on only when its workflow is not paused either."""
    row = await schedules.find_schedule(transaction, schedule_id, locks=True)
    if row is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    if row.is_paused == (not is_active):
        return
    reason = clean_text(reason)
    await schedules.set_paused(transaction, [(row.id, not is_active, "" if is_active else reason)])
    is_workflow_active = await definitions.is_active(transaction, row.workflow_id)
    now = await schedules.read_now(transaction)
    armed = arm_schedule(
        row.id, core.read_schedule(row), is_workflow_active, now, row._replace(is_paused=not is_active)
    )
    await schedules.change_schedules(transaction, [armed])
    word = "resumed" if is_active else "paused"
    await record(core, transaction, [note_schedule(row, word, {"reason": reason or "asked for"})])
    transaction.wake(Topic.SCHEDULES)
