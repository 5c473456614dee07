"""What holds in the database whenever no transaction is on its way, read from the tables and the pure domain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from rota.domain.fork import build_fork
from rota.domain.graph import Graph, build_graph, run_outcome
from rota.domain.rules import Decision, TriggerRule, count_outcomes, decide
from rota.domain.states import RUN_FINAL, RUN_MOVES, TASK_FINAL, TASK_MOVES, RunState, TaskState
from rota.store.database import Database, Transaction
from rota.store.tables import (
    attempts,
    state_history,
    task_dependencies,
    task_runs,
    tasks,
    workflow_runs,
    workflows,
)
from rota.store.tables_maps import task_maps


@dataclass
class Snapshot:
    """All that the invariants speak of."""

    workflows: dict[str, Any]
    runs: Sequence[Any]
    task_runs: Sequence[Any]
    tasks: dict[str, Any]
    upstreams: dict[str, list[str]]
    history: dict[str, list[Any]]
    attempts: dict[str, list[Any]]
    # The runs that task runs have started.
    called: dict[tuple[str, int], Any]
    maps: dict[tuple[str, str], Any]


async def find_faults(database: Database, workflow_ids: Iterable[str] | None = None) -> list[str]:
    """Everything that is wrong with the runs of these workflows (of all, if none are named)."""
    wanted = None if workflow_ids is None else set(workflow_ids)
    snapshot = await database.read(lambda tx: _take(tx, wanted))
    of_run: dict[str, list[Any]] = defaultdict(list)
    for row in snapshot.task_runs:
        of_run[row.run_id].append(row)
    faults: list[str] = []
    for run in snapshot.runs:
        rows = [row for row in of_run[run.id] if row.map_index < 0]
        items = [row for row in of_run[run.id] if row.map_index >= 0]
        faults += _check_run(snapshot, run, rows)
        faults += _check_branches(snapshot, run, rows)
        faults += _check_maps(snapshot, run, rows, items)
        for row in [*rows, *items]:
            faults += _check_task_run(snapshot, run, row, rows)
    return faults + list(_check_turns(snapshot)) + list(_check_keys(snapshot))


async def _take(transaction: Transaction, wanted: set[str] | None) -> Snapshot:
    def narrow(statement: Any, column: Any) -> Any:
        return statement if wanted is None else statement.where(column.in_(wanted))

    of_runs = select(workflow_runs.c.id)
    run_ids = narrow(of_runs, workflow_runs.c.workflow_id)
    found = await transaction.rows(narrow(select(workflows), workflows.c.id))
    runs = await transaction.rows(narrow(select(workflow_runs), workflow_runs.c.workflow_id))
    rows = await transaction.rows(narrow(select(task_runs), task_runs.c.workflow_id))
    of_tasks = await transaction.rows(narrow(select(tasks), tasks.c.workflow_id))
    upstreams: dict[str, list[str]] = defaultdict(list)
    for row in await transaction.rows(select(task_dependencies).order_by(task_dependencies.c.id)):
        upstreams[row.task_id].append(row.depends_on_task_id)
    history: dict[str, list[Any]] = defaultdict(list)
    in_runs = state_history.c.root_id.in_(run_ids)
    for row in await transaction.rows(select(state_history).where(in_runs).order_by(state_history.c.seq)):
        history[row.entity_id].append(row)
    ended: dict[str, list[Any]] = defaultdict(list)
    for row in await transaction.rows(select(attempts).where(attempts.c.run_id.in_(run_ids))):
        ended[row.task_run_id].append(row)
    children = select(workflow_runs).where(workflow_runs.c.parent_task_run_id.is_not(None))
    called = {(row.parent_task_run_id, row.parent_attempt): row for row in await transaction.rows(children)}
    mapped = {(row.run_id, row.task_id): row for row in await transaction.rows(select(task_maps))}
    known = {row.id: row for row in of_tasks}
    return Snapshot({row.id: row for row in found}, runs, rows, known, upstreams, history, ended, called, mapped)


def graph_of(snapshot: Snapshot, rows: Sequence[Any]) -> Graph:
    ids = [row.task_id for row in rows]
    return build_graph(ids, {task_id: snapshot.upstreams[task_id] for task_id in ids})


def _check_run(snapshot: Snapshot, run: Any, rows: Sequence[Any]) -> Iterator[str]:
    name = f"run {run.id} ({run.status})"
    states = {row.task_id: TaskState(row.status) for row in rows}
    remaining = sum(state not in TASK_FINAL for state in states.values())
    if len(rows) != run.task_count:
        yield f"{name} has {len(rows)} task runs and should have {run.task_count}"
    if run.remaining != remaining:
        yield f"{name}: remaining is {run.remaining}, a recount gives {remaining}"
    failed = sum(row.status in ("failed", "cancelled") and not row.is_teardown for row in rows)
    if run.failed_count != failed:
        yield f"{name}: failed_count is {run.failed_count}, a recount gives {failed}"
    expected = _expect_outcome(snapshot, run, rows, states)
    if run.status != "pending" and run.status != expected:
        yield f"{name}: the rules say {expected} for {sorted(states.values())}"
    if run.status == "pending" and not set(states.values()) <= {TaskState.PENDING}:
        yield f"{name} has not started, but its task runs are {sorted(states.values())}"
    yield from _check_history(snapshot, run, None, RUN_MOVES, RunState)


def _check_maps(snapshot: Snapshot, run: Any, rows: Sequence[Any], items: Sequence[Any]) -> Iterator[str]:
    """The counters of mapped tasks, and that these last exactly as long as their items."""
    of_task: dict[str, list[Any]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.map_index):
        of_task[item.task_id].append(item)
    for parent in rows:
        found = of_task.pop(parent.task_id, [])
        known = snapshot.maps.get((run.id, parent.task_id))
        name = f"map {snapshot.tasks[parent.task_id].name} ({parent.status}) of run {run.id}"
        if known is None:
            if found or parent.holder == "items":
                yield f"{name} has {len(found)} items and no counters"
            continue
        yield from (f"{name}: {fault}" for fault in _check_map(known, parent, found))
    if of_task:
        yield f"run {run.id} has items of no task"


def _check_map(known: Any, parent: Any, found: Sequence[Any]) -> Iterator[str]:
    counts = Counter(item.status for item in found)
    stored = (known.failed, known.cancelled, known.skipped, known.waiting)
    recount = (counts["failed"], counts["cancelled"], counts["skipped"], counts["pending"])
    if stored != recount:
        yield f"failed, cancelled, skipped and waiting are {stored}, a recount gives {recount}"
    unborn = known.total - known.created
    remaining = unborn + sum(item.status not in TASK_FINAL for item in found)
    if known.remaining != remaining:
        yield f"remaining is {known.remaining}, a recount gives {remaining}"
    if [item.map_index for item in found] != list(range(known.created)) or (known.items is None) != (unborn == 0):
        yield f"{known.created} of {known.total} items are said to exist, and {len(found)} do"
    # What has ended by other means than its items gets no more of them.
    left = remaining if parent.status == "running" else remaining - unborn
    if (parent.holder == "items") != (left > 0):
        yield f"{left} items are left"
    if parent.status == "running" and known.attempt != parent.attempt:
        yield f"attempt {known.attempt} holds the items and it is at {parent.attempt}"
    active = counts["queued"] + counts["running"] + counts["retrying"]
    if known.concurrency is not None and active > known.concurrency:
        yield f"{active} items are on their way and {known.concurrency} may be"
    if counts["pending"] and active < (known.concurrency or len(found)):
        yield f"{counts['pending']} items wait and {active} are on their way"


def _check_branches(snapshot: Snapshot, run: Any, rows: Sequence[Any]) -> Iterator[str]:
    """What a branch has left out waits no longer."""
    branches = [row for row in rows if row.is_branch and row.status == "success" and row.output is not None]
    if not branches:
        return
    names = {row.task_id: snapshot.tasks[row.task_id].name for row in rows}
    states = {names[row.task_id]: row.status for row in rows}
    depends_on = {names[row.task_id]: [names[item] for item in snapshot.upstreams[row.task_id]] for row in rows}
    teardown = frozenset(names[row.task_id] for row in rows if row.is_teardown)
    for row in branches:
        fork = build_fork(build_graph(states, depends_on), names[row.task_id], teardown)
        for name in fork.leave_out(row.output):
            if states[name] == "pending":
                yield f"run {run.id}: {fork.branch} left {name} out, and it waits"


def _expect_outcome(snapshot: Snapshot, run: Any, rows: Sequence[Any], states: dict[str, TaskState]) -> str:
    rules = {row.task_id: TriggerRule(row.trigger_rule) for row in rows}
    teardown = {row.task_id for row in rows if row.is_teardown}
    outcome = run_outcome(graph_of(snapshot, rows), rules, states, teardown)
    is_cut = any(row.status == "cancelled" and not row.is_teardown for row in rows)
    if outcome in RUN_FINAL and run.cancel_requested_at is not None and is_cut:
        return "cancelled"
    return str(outcome)


def _check_task_run(snapshot: Snapshot, run: Any, row: Any, rows: Sequence[Any]) -> Iterator[str]:
    name = f"task run {snapshot.tasks[row.task_id].name} ({row.status}) of run {run.id}"
    if row.status == "pending" and row.map_index < 0:
        yield from (f"{name}: {fault}" for fault in _check_waiting(snapshot, run, row, rows))
    is_waiting_for_key = row.status == "queued" and row.key_state in ("new", "waiting")
    if row.status == "queued" and is_waiting_for_key != (row.lane_id == 0):
        yield f"{name} is {row.key_state} for its key and lies in lane {row.lane_id}"
    if row.status == "running" and row.concurrency_key is not None and row.key_state != "held":
        yield f"{name} runs and does not hold its key"
    if row.status == "queued" and (row.claim_rank is None or run.status != "running"):
        yield f"{name} cannot be claimed"
    is_leased = row.lease_expires_at is not None and row.worker_id and row.incarnation
    if row.status == "running" and bool(is_leased) == (row.holder is not None):
        yield f"{name} has not exactly one owner"
    if row.status == "retrying" and row.due_at is None:
        yield f"{name} will never be due"
    yield from (f"{name}: {fault}" for fault in _check_call(snapshot, row))
    kept = sorted(entry.attempt for entry in snapshot.attempts[row.id])
    expected = list(range(1, row.attempt + (not _is_in_row(snapshot, row))))
    if kept != expected:
        yield f"{name}: attempts {kept} are kept, and should be {expected}"
    starts = sum(entry.new_state == "running" for entry in _moves(snapshot, row))
    if starts != row.attempt:
        yield f"{name} was started {starts} times and is at attempt {row.attempt}"
    yield from _check_history(snapshot, row, "pending", TASK_MOVES, TaskState)


def _check_call(snapshot: Snapshot, row: Any) -> Iterator[str]:
    """Whoever waits for a run is told of its end; whoever does not wait leaves none running."""
    child = snapshot.called.get((row.id, row.attempt))
    if row.holder == "run" and (child is None or (child.finished_at is not None and not child.is_untold)):
        yield "the run that it waits for does not exist or has ended"
    if row.is_calling and row.holder is None and (child is None or child.finished_at is not None):
        yield "its run has ended, and yet it counts as calling"


def _is_in_row(snapshot: Snapshot, row: Any) -> bool:
    """The latest attempt stands in the task run's own row until another one can follow, or somebody marks it."""
    last = next(iter(_moves(snapshot, row)[-1:]), None)
    if last is not None and (last.metadata or {}).get("is_marked"):
        return bool(row.status == "failed" and last.old_state == "running")
    if row.status in ("cancelled", "failed"):
        return bool(_moves(snapshot, row)[-1].old_state == "running")
    return row.status in ("running", "success", "skipped") and row.attempt > 0


def _check_waiting(snapshot: Snapshot, run: Any, row: Any, rows: Sequence[Any]) -> Iterator[str]:
    states = {other.task_id: TaskState(other.status) for other in rows}
    counters = count_outcomes(states[task_id] for task_id in snapshot.upstreams[row.task_id])
    stored = (row.upstream_waiting, row.upstream_succeeded, row.upstream_failed, row.upstream_skipped)
    recount = (counters.waiting, counters.succeeded, counters.failed, counters.skipped)
    if stored != recount:
        yield f"its counters are {stored}, a recount gives {recount}"
    if run.status != "pending" and decide(TriggerRule(row.trigger_rule), counters) is not Decision.WAIT:
        yield f"{row.trigger_rule} decides on {recount}, and yet it waits"


def _moves(snapshot: Snapshot, row: Any) -> list[Any]:
    return [entry for entry in snapshot.history[row.id] if "event" not in (entry.metadata or {})]


def _check_history(snapshot: Snapshot, row: Any, first: str | None, table: Any, kind: Any) -> Iterator[str]:
    state = first
    for entry in _moves(snapshot, row):
        if entry.old_state != state:
            yield f"history of {row.id}: {entry.old_state} -> {entry.new_state} follows {state}"
        elif state is not None and kind(entry.new_state) not in table[kind(state)]:
            yield f"history of {row.id}: {state} -> {entry.new_state} is not allowed"
        state = entry.new_state
    if state != row.status:
        yield f"history of {row.id} ends with {state}, and it is {row.status}"


def _check_keys(snapshot: Snapshot) -> Iterator[str]:
    """Whoever waits for a key waits for somebody who holds it."""
    held = {(row.namespace, row.concurrency_key) for row in snapshot.task_runs if row.key_state == "held"}
    waiting = [row for row in snapshot.task_runs if row.status == "queued" and row.key_state == "waiting"]
    for row in waiting:
        if (row.namespace, row.concurrency_key) not in held:
            yield f"task run {row.id} waits for key {row.concurrency_key}, which nobody holds"


def _check_turns(snapshot: Snapshot) -> Iterator[str]:
    """A run waits for its turn only while there is none; one that another run has started begins a moment later."""
    active = Counter(run.workflow_id for run in snapshot.runs if run.status == "running" and run.is_limited)
    ahead = {run.schedule_id for run in snapshot.runs if run.status == "running" and run.schedule_id}
    waiting = [run for run in snapshot.runs if run.status == "pending" and run.parent_run_id is None]
    # A run that waits for another one of its schedule needs no other reason.
    free = [run for run in waiting if not (run.is_serial and run.schedule_id in ahead)]
    for workflow_id in {run.workflow_id for run in free}:
        limit = snapshot.workflows[workflow_id].max_active_runs
        if limit is None or active[workflow_id] < limit:
            yield f"runs of workflow {workflow_id} wait although {active[workflow_id]} of {limit} are active"
