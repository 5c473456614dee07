"""explain: why is it not running? Answered by the rules and counts that decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rota.domain.errors import NotFound
from rota.domain.states import Holder as TaskHolder
from rota.domain.states import KeyState
from rota.engine.capacity import find_free, limits_of
from rota.engine.core import Core, WorkerFacts
from rota.engine.explain_held import describe_held
from rota.engine.explain_items import explain_item, explain_mapped
from rota.store import queues, schedules
from rota.store.database import Transaction
from rota.store.lanes import Lane
from rota.store.queues import QueueLimit
from rota.store.reads import reasons


@dataclass(frozen=True, slots=True)
class Holder:
    """Something that is in the way."""

    id: str
    name: str
    since_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: a stable code, a sentence, who is in the way, and when it is looked at next."""

    status: str
    code: str
    sentence: str
    holders: tuple[Holder, ...] = ()
    next_check_at: datetime | None = None
    details: dict[str, Any] = field(default_factory=dict)


async def explain_task_run(core: Core, transaction: Transaction, task_run_id: str) -> Explanation:
    """Why this task run is where it is."""
    row = await reasons.read_task_run(transaction, task_run_id)
    if row is None:
        raise NotFound(f"there is no task run {task_run_id}")
    if row.status == "pending":
        return await _explain_pending(transaction, row)
    if row.status == "queued":
        return await _explain_queued(core, transaction, row)
    if row.status == "retrying":
        return Explanation(
            row.status,
            "waiting_for_retry",
            f"attempt {row.attempt} failed ({row.error_type}); the next one is due",
            next_check_at=row.due_at,
            details={"error": row.error},
        )
    if row.status == "running":
        child = await reasons.read_called_run(transaction, row.id, row.attempt) if row.holder == "run" else None
        return await _explain_running(transaction, row) if child is None else await _explain_call(transaction, child)
    return Explanation(row.status, "ended", f"it ended as {row.status}", details={"finished_at": row.finished_at})


async def _explain_pending(transaction: Transaction, row: Any) -> Explanation:
    if row.run_status == "pending":
        run = await explain_run_turn(transaction, row.run_id)
        return run or Explanation(row.status, "starting", "its run is about to start")
    if row.map_index >= 0:
        return Explanation(row.status, *await explain_item(transaction, row.run_id, row.task_id))
    blockers = await reasons.read_blockers(transaction, row.run_id, row.task_id)
    names = ", ".join(f"{blocker.name} ({blocker.status})" for blocker in blockers)
    return Explanation(
        row.status,
        "waiting_for_upstream",
        f"with trigger rule {row.trigger_rule} it waits for {names}",
        tuple(Holder(blocker.id, blocker.name) for blocker in blockers),
    )


async def _explain_call(transaction: Transaction, child: Any) -> Explanation:
    """Of a task run that waits for a run that it has started."""
    turn = await explain_run_turn(transaction, child.id)
    why = f": {turn.sentence}" if turn else ""
    sentence = f"it waits for its run of workflow {child.name}, which is {child.status}{why}"
    if turn is not None:
        return Explanation("running", turn.code, sentence, turn.holders)
    return Explanation("running", "waiting_for_run", sentence, (Holder(child.id, child.name, child.started_at),))


async def _explain_running(transaction: Transaction, row: Any) -> Explanation:
    if row.holder == TaskHolder.ITEMS:
        return Explanation(row.status, *await explain_mapped(transaction, row.run_id, row.task_id))
    if row.holder is not None:
        code, sentence = describe_held(row.holder, row.waiting_for)
        details = {"holder": row.holder, "waiting_for": row.waiting_for}
        return Explanation(row.status, code, sentence, next_check_at=row.due_at, details=details)
    if row.cancel_requested_at is not None:
        return Explanation(
            row.status,
            "cancelling",
            "its worker has been asked to stop it",
            (Holder(row.worker_id, "worker", row.started_at),),
            row.lease_expires_at,
        )
    return Explanation(
        row.status,
        "running",
        f"attempt {row.attempt} is being executed",
        (Holder(row.worker_id, "worker", row.started_at),),
        row.lease_expires_at,
    )


async def _explain_queued(core: Core, transaction: Transaction, row: Any) -> Explanation:
    if row.key_state in (KeyState.NEW, KeyState.WAITING):
        return await _explain_key(transaction, row)
    lane = (await core.find_lanes(transaction, [row.lane_id]))[row.lane_id]
    full = await _explain_full(transaction, lane)
    if full is not None:
        return full
    workers = await reasons.read_active_workers(transaction)
    able = [worker for worker in workers if _facts(worker).may_take(lane)]
    if not able:
        labels = f" and labels {dict(lane.labels)}" if lane.labels else ""
        return Explanation(
            "queued",
            "no_worker",
            f"no active worker serves queue {lane.queue} and kind {lane.kind}{labels}: start one that does",
            details={"queue": lane.queue, "kind": lane.kind, "labels": dict(lane.labels)},
        )
    ahead = await reasons.count_ahead(transaction, row.id, row.lane_id)
    return Explanation(
        "queued",
        "waiting_for_worker",
        f"{ahead} task runs go first; {len(able)} workers may take it as soon as they have a free slot",
        tuple(Holder(worker.id, worker.name) for worker in able[:20]),
        details={"ahead": ahead},
    )


async def _explain_key(transaction: Transaction, row: Any) -> Explanation:
    holders = await reasons.read_key_holders(transaction, row.namespace, row.concurrency_key)
    sentence = f"of all task runs with the key {row.concurrency_key!r} one runs at a time"
    return Explanation(
        "queued",
        "concurrency_key",
        f"{sentence}, and another one has its turn" if holders else f"{sentence}: it is about to get its turn",
        _holders(holders),
        row.due_at,
        {"concurrency_key": row.concurrency_key},
    )


def _facts(worker: Any) -> WorkerFacts:
    return WorkerFacts(
        worker.id, "", frozenset(worker.queues), frozenset(worker.kinds), frozenset(worker.labels.items())
    )


async def _explain_full(transaction: Transaction, lane: Lane) -> Explanation | None:
    limited = await queues.find_limited(transaction)
    keys = limits_of(lane, limited)
    if not keys:
        return None
    free = await find_free(transaction, [lane], limited, locks=False)
    for key in keys:
        kind, _name = key
        needed = lane.pool_slots if kind == "pool" else 1
        if free.slots.get(key, 0) >= needed:
            continue
        if kind == "queue":
            return _explain_queue(lane, free.queues[lane.namespace, lane.queue])
        if kind == "pool":
            return await _explain_pool(transaction, lane, free.slots.get(key))
        holders = await reasons.read_workflow_holders(transaction, lane.workflow_id or "")
        return Explanation(
            "queued", "max_active_tasks", "its workflow has as many active tasks as it may have", _holders(holders)
        )
    return None


async def _explain_pool(transaction: Transaction, lane: Lane, free: int | None) -> Explanation:
    holders = await reasons.read_pool_holders(transaction, lane.namespace, lane.pool or "")
    sentence = (
        f"pool {lane.pool} does not exist (any more): create it"
        if free is None
        else f"pool {lane.pool} has {free} free slots and it needs {lane.pool_slots}"
    )
    return Explanation("queued", "pool_full", sentence, _holders(holders), details={"pool": lane.pool})


def _explain_queue(lane: Lane, limit: QueueLimit) -> Explanation:
    details = {"queue": lane.queue}
    if limit.rate is None or limit.is_paused:
        sentence = f"queue {lane.queue} is paused: unpause it (PUT /queues/{lane.queue})"
        return Explanation("queued", "queue_paused", sentence, details=details)
    rate = limit.rate
    sentence = f"of queue {lane.queue} {rate.starts} may start in {rate.seconds:g} seconds, {rate.burst} at once"
    return Explanation("queued", "rate_limit", sentence, next_check_at=limit.next_at, details=details)


def _holders(rows: Sequence[Any]) -> tuple[Holder, ...]:
    return tuple(Holder(row.id, f"{row.workflow}.{row.name}", row.started_at) for row in rows)


async def explain_run(core: Core, transaction: Transaction, run_id: str) -> Explanation:
    """Why this run has not ended."""
    run = await reasons.read_run(transaction, run_id)
    if run is None:
        raise NotFound(f"there is no workflow run {run_id}")
    if run.status == "pending":
        turn = await explain_run_turn(transaction, run_id)
        return turn or Explanation("pending", "starting", "it is about to start")
    if run.status != "running":
        return Explanation(run.status, "ended", f"it ended as {run.status}", details={"finished_at": run.finished_at})
    counts = await reasons.read_status_counts(transaction, run_id)
    for status in ("running", "queued", "retrying", "pending"):
        if status in counts:
            first = await explain_task_run(core, transaction, counts[status][1])
            return Explanation(
                "running",
                first.code,
                f"{run.remaining} task runs are left; the first that is {status}: {first.sentence}",
                first.holders,
                first.next_check_at,
                {"counts": {name: count for name, (count, _first) in counts.items()}},
            )
    return Explanation("running", "ending", "every task run has ended")


async def explain_run_turn(transaction: Transaction, run_id: str) -> Explanation | None:
    """Why a run has not started: the workflow's other runs."""
    run = await reasons.read_run(transaction, run_id)
    if run is None or run.status != "pending":
        return None
    active = await reasons.read_active_runs(transaction, run.workflow_id)
    return Explanation(
        "pending",
        "max_active_runs",
        f"workflow {run.name} has {len(active)} active runs and may have {run.max_active_runs}",
        tuple(Holder(row.id, run.name, row.started_at) for row in active),
    )


async def explain_schedule(core: Core, transaction: Transaction, schedule_id: str) -> Explanation:
    """Why a schedule does not fire: paused, finished, or not due yet; with its last decision and last run."""
    row = await schedules.find_schedule(transaction, schedule_id)
    if row is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    decision = await reasons.read_last_decision(transaction, schedule_id)
    tick = await reasons.read_last_tick(transaction, schedule_id)
    details: dict[str, Any] = {"cursor_at": row.cursor_at}
    if decision is not None:
        details["last_decision"] = {
            "decision": decision.new_state,
            "at": decision.changed_at,
            **(decision.metadata or {}),
        }
    if tick is not None:
        details["last_run"] = {"id": tick.id, "status": tick.status, "logical_date": tick.logical_date}
    if not row.is_active:
        why = f" ({row.paused_reason})" if row.paused_reason else ""
        sentence = f"it is paused{why}: unpause it" if row.is_paused else "its workflow is paused: unpause it"
        return Explanation("paused", "paused", sentence, details=details)
    if row.next_due_at is None:
        return Explanation("finished", "finished", "its rule has no further tick", details=details)
    return Explanation(
        "active", "not_due", "it waits for its next tick", next_check_at=row.next_due_at, details=details
    )
