"""Waits for runs of other workflows, or for tasks of them: looked for again and again, many in one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.domain.states import RUN_FINAL, TASK_FINAL, Holder
from rota.domain.work import ErrorType
from rota.engine.core import Core, ReadyTask
from rota.engine.held import HeldEnd, decide_held
from rota.store import awaited
from rota.store.awaited import Asked, Found
from rota.store.database import Transaction
from rota.store.gates import DueRow, Hold, PutOff
from rota.store.outcomes import Outcome
from rota.store.schedules import read_now

# Who has waited for long can wait a little longer: the pause is this part of the time waited, within bounds.
PAUSE_PART = 0.1
SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
# What an awaited status stands for.
_MEANT: Mapping[str, frozenset[str]] = {
    "success": frozenset({"success"}),
    "failed": frozenset({"failed", "upstream_failed"}),
    "cancelled": frozenset({"cancelled"}),
    "done": frozenset(map(str, TASK_FINAL | RUN_FINAL)),
}


def hold_for_run(item: ReadyTask, asked: Mapping[str, Any], logical_at: datetime) -> Hold:
    """Held from now on, and looked at at once."""
    waiting_for = {
        "workflow": asked["workflow"],
        "logical_date": logical_at,
        "status": asked.get("status", "success"),
        **({"task": asked["task"]} if "task" in asked else {}),
    }
    return Hold(item.row.id, Holder.WAIT, due_seconds=0.0, waiting_for=waiting_for)


async def look_for_runs(core: Core, transaction: Transaction, due: Sequence[DueRow]) -> list[Outcome | PutOff]:
    """Ends the waits whose run, or task, has ended as they wish, and those that are over their time."""
    known, rows = await awaited.find_awaited(transaction, [_ask(row) for row in due])
    found: dict[str, list[Found]] = defaultdict(list)
    for item in rows:
        found[item.asked_id].append(item)
    now = await read_now(transaction)
    tasks = await core.find_tasks(transaction, [row.task_id for row in due])
    ends: list[HeldEnd] = []
    later: list[PutOff] = []
    for row in due:
        met = _find_met(row, found[row.id])
        if met is not None:
            ends.append(_succeed(row, met, tasks[row.task_id].spec.output))
            continue
        last = _describe(row.waiting_for, found[row.id], is_known=row.id in known)
        decided = _put_off(row, last, now)
        if isinstance(decided, PutOff):
            later.append(decided)
        else:
            ends.append(decided)
    return [*await decide_held(core, transaction, ends), *later]


def _ask(row: DueRow) -> Asked:
    asked = row.waiting_for
    logical_at = datetime.fromisoformat(asked["logical_date"])
    return Asked(row.id, row.namespace, asked["workflow"], logical_at, asked.get("task"))


def _find_met(row: DueRow, found: Sequence[Found]) -> Found | None:
    meant = _MEANT[row.waiting_for["status"]]
    return next((item for item in found if _read_status(item, row.waiting_for) in meant), None)


def _read_status(item: Found, asked: Mapping[str, Any]) -> str | None:
    return item.task_status if "task" in asked else item.status


def _succeed(row: DueRow, met: Found, form: str) -> HeldEnd:
    told = {"run_id": met.run_id, "status": _read_status(met, row.waiting_for)}
    output = {"json": told, "text": met.run_id}.get(form)
    return HeldEnd(row.id, row.attempt, Holder.WAIT, "success", output=output, details={"awaited": told})


def _put_off(row: DueRow, last: str, now: datetime) -> HeldEnd | PutOff:
    """Until it is looked for again, or its end if that is over its time."""
    asked = row.waiting_for
    waited = now - row.started_at
    pause_seconds = min(max(waited.total_seconds() * PAUSE_PART, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
    next_at = now + timedelta(seconds=pause_seconds)
    if row.timeout_seconds is not None:
        deadline_at = row.started_at + timedelta(seconds=row.timeout_seconds)
        if deadline_at <= now:
            reason = f"it did not end as {asked['status']} within {row.timeout_seconds:g} seconds: {last}"
            return HeldEnd(row.id, row.attempt, Holder.WAIT, "failed", ErrorType.TIMEOUT, reason)
        next_at = min(next_at, deadline_at)
    return PutOff(row.id, row.attempt, row.due_at, next_at, {**asked, "last": last})


def _describe(asked: Mapping[str, Any], found: Sequence[Found], *, is_known: bool) -> str:
    """Why it goes on waiting."""
    if not is_known:
        return "there is no such workflow"
    if not found:
        return "there is no such run"
    newest = found[-1]
    status = _read_status(newest, asked)
    if status is None:
        return f"run {newest.run_id} has no such task"
    what = f"task {asked['task']} of run {newest.run_id}" if "task" in asked else f"run {newest.run_id}"
    return f"{what} is {status}"
