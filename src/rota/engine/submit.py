"""submit: creates workflow runs with their task runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from rota.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from rota.domain.run_labels import find_label_faults
from rota.engine.advance import advance
from rota.engine.backlog import require_room
from rota.engine.core import Core, Ended, VersionDefinition
from rota.engine.params import Declaration, describe_run
from rota.engine.record import note_run, note_task, record
from rota.engine.retry import decide_again
from rota.store import copies, definitions, history, run_labels, schedules, task_runs, turns, workflow_runs
from rota.store.copies import TakenOver
from rota.store.database import Transaction
from rota.store.definitions import ROWS_PER_STATEMENT, WorkflowRow
from rota.store.encoding import encode_json
from rota.store.wakeups import Topic
from rota.store.workflow_runs import NewRun, Parent

# What is refused when too much waits. What Rota itself promised before is not.
BY_CALLERS = ("manual", "rerun")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Asks for one run of a workflow's current version (or of the one named)."""

    workflow_id: str
    trigger: str = "manual"
    logical_at: datetime | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    schedule_id: str | None = None
    version_id: str | None = None
    # Parameters that do not fit are told in the answer, and make no run; else they are raised and refuse all.
    tells_refusal: bool = False
    # Waits until the older open runs of its schedule have ended; `is_held_back`: there is such a run.
    is_serial: bool = False
    is_held_back: bool = False
    # The run that it repeats; results taken over from it: for a task of the version, a task run.
    rerun_of: str | None = None
    copies: Mapping[str, str] = field(default_factory=dict)
    backfill_id: str | None = None
    # Its end is looked at, whatever the workflow asks for.
    is_watched: bool = False
    # What started it. Then it waits for its turn even if there is one, and is started right after the commit.
    parent: Parent | None = None
    # How long it may take, if that is less than what its workflow allows.
    timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """The answer: the run, or None where the tick had made its run before, or where it was refused."""

    id: str | None
    status: str = ""
    refusal: InvalidInput | None = None


async def submit(core: Core, transaction: Transaction, requests: Sequence[RunRequest]) -> list[SubmittedRun]:
    """Creates one run for each request; runs beyond the workflow's max_active_runs wait for their turn."""
    _check(requests)
    rows = await definitions.read_workflows(transaction, [request.workflow_id for request in requests])
    free = await _find_turns(transaction, rows, requests)
    known = await _find_versions(core, transaction, rows, requests)
    ids = core.new_ids(len(requests))
    new: list[NewRun] = []
    versions: dict[str, VersionDefinition] = {}
    refusals: dict[str, InvalidInput] = {}
    for run_id, request in zip(ids, requests, strict=True):
        workflow = rows.get(request.workflow_id)
        if workflow is None:
            raise NotFound(f"there is no workflow {request.workflow_id}")
        version = known.get(request.version_id or workflow.current_version_id or "")
        if version is None or version.workflow_id != workflow.id:
            raise Conflict(f"workflow {workflow.name} has no tasks yet: add tasks before it is run", code="no_tasks")
        if version.params is not None:
            try:
                request = await _resolve_params(transaction, run_id, workflow, version.params, request)
            except InvalidInput as error:
                if not request.tells_refusal:
                    raise
                refusals[run_id] = error
                continue
        versions[run_id] = version
        is_full = workflow.max_active_runs is not None and free.get(workflow.id, 0) <= 0
        # A run that goes on from results starts at once, as a retry does.
        is_waiting = (is_full or request.is_held_back or request.parent is not None) and not request.copies
        if workflow.max_active_runs is not None and not is_waiting:
            free[workflow.id] -= 1
        new.append(_make_run(run_id, workflow, version, request, "pending" if is_waiting else "running"))
    called = {run.workflow_id for run in new if run.parent is not None}
    if called:
        core.follow_up.soon(transaction, called)
    created = await _create(core, transaction, new)
    taken_over = {run_id: request.copies for run_id, request in zip(ids, requests, strict=True) if request.copies}
    await _create_tasks(core, transaction, [run for run in new if run.id in created], versions, taken_over)
    answers = {run.id: SubmittedRun(run.id, run.status) for run in new if run.id in created}
    return [answers.get(run_id) or SubmittedRun(None, refusal=refusals.get(run_id)) for run_id in ids]


def _check(requests: Sequence[RunRequest]) -> None:
    for request in requests:
        faults = find_label_faults(request.labels) if request.labels else []
        if faults:
            raise InvalidInput.of(faults)
        try:
            encode_json(request.params)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput.of([FieldError("params", f"cannot be written as JSON: {error}")]) from error


async def _resolve_params(
    transaction: Transaction, run_id: str, workflow: WorkflowRow, params: Declaration, request: RunRequest
) -> RunRequest:
    """The request with the parameters that the run gets. Raises InvalidInput."""
    moment = request.logical_at
    if moment is None and params.templates:
        moment = await schedules.read_now(transaction)
    values = describe_run(run_id, moment, workflow.name, workflow.namespace) if moment is not None else {}
    return replace(request, logical_at=moment, params=params.resolve(request.params, values))


async def _find_turns(
    transaction: Transaction, rows: Mapping[str, WorkflowRow], requests: Sequence[RunRequest]
) -> dict[str, int]:
    """Those of runs that may start at once. Who starts a run from within another holds no workflow meanwhile."""
    wanted = {request.workflow_id for request in requests if request.parent is None}
    limited = [row.id for row in rows.values() if row.max_active_runs is not None and row.id in wanted]
    return await turns.lock_free_turns(transaction, limited) if limited else {}


async def _find_versions(
    core: Core, transaction: Transaction, rows: Mapping[str, WorkflowRow], requests: Sequence[RunRequest]
) -> dict[str, VersionDefinition]:
    current = {row.id: row.current_version_id for row in rows.values()}
    wanted = {request.version_id or current.get(request.workflow_id) for request in requests}
    return await core.find_versions(transaction, [version_id for version_id in wanted if version_id])


def _make_run(
    run_id: str, workflow: WorkflowRow, version: VersionDefinition, request: RunRequest, status: str
) -> NewRun:
    return NewRun(
        id=run_id,
        namespace=workflow.namespace,
        workflow_id=workflow.id,
        version_id=version.id,
        trigger=request.trigger,
        status=status,
        task_count=len(version.task_ids),
        logical_at=request.logical_at,
        schedule_id=request.schedule_id,
        params=dict(request.params),
        note=request.note,
        labels=request.labels,
        rerun_of=request.rerun_of,
        is_limited=workflow.max_active_runs is not None,
        is_serial=request.is_serial,
        is_watched=version.is_watched or request.is_watched,
        timeout_seconds=_choose_timeout(version, request),
        parent=request.parent,
        backfill_id=request.backfill_id,
    )


def _choose_timeout(version: VersionDefinition, request: RunRequest) -> float | None:
    """The shorter of the two that there may be."""
    known = [seconds for seconds in (version.run_timeout_seconds, request.timeout_seconds) if seconds is not None]
    return min(known) if known else None


async def _create(core: Core, transaction: Transaction, runs: Sequence[NewRun]) -> set[str]:
    await require_room(core, transaction, Counter(run.namespace for run in runs if run.trigger in BY_CALLERS))
    created: set[str] = set()
    for start in range(0, len(runs), ROWS_PER_STATEMENT):
        created |= await workflow_runs.create_runs(transaction, runs[start : start + ROWS_PER_STATEMENT])
    labels = [(run.id, run.namespace, *label) for run in runs if run.id in created for label in _list_labels(run)]
    for start in range(0, len(labels), ROWS_PER_STATEMENT):
        await run_labels.insert_labels(transaction, labels[start : start + ROWS_PER_STATEMENT])
    return created


def _list_labels(run: NewRun) -> Iterable[tuple[str, str]]:
    return run.labels.items() if run.labels else ()


async def _create_tasks(
    core: Core,
    transaction: Transaction,
    runs: Sequence[NewRun],
    versions: Mapping[str, VersionDefinition],
    taken_over: Mapping[str, Mapping[str, str]],
) -> None:
    ids = iter(core.new_ids(sum(run.task_count for run in runs)))
    rows: list[tuple[str, str, str]] = []
    changes: list[history.Change] = []
    ready: list[str] = []
    pairs: list[tuple[str, str]] = []
    for run in runs:
        version = versions[run.id]
        copied = taken_over.get(run.id, {})
        changes.append(note_run(run.id, run.namespace, None, run.status, {"trigger": run.trigger}))
        for task_id in version.task_ids:
            task_run_id = next(ids)
            rows.append((task_run_id, run.id, task_id))
            if task_id in copied:
                pairs.append((task_run_id, copied[task_id]))
            elif run.status == "running" and task_id in version.first_task_ids:
                changes.append(note_task(task_run_id, run.id, run.namespace, "pending", "queued"))
                ready += [task_run_id] if task_id in version.gated_task_ids else []
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        await task_runs.create_task_runs(transaction, rows[start : start + ROWS_PER_STATEMENT])
    if pairs:
        changes += await _take_over(core, transaction, [run for run in runs if run.id in taken_over], pairs, ready)
    elif ready:
        changes += await advance(core, transaction, [], ready)
    for start in range(0, len(changes), ROWS_PER_STATEMENT):
        await record(core, transaction, changes[start : start + ROWS_PER_STATEMENT])
    if runs:
        transaction.wake(Topic.QUEUE)


async def _take_over(
    core: Core, transaction: Transaction, runs: Sequence[NewRun], pairs: Sequence[tuple[str, str]], ready: Sequence[str]
) -> list[history.Change]:
    """Gives new task runs the results of older ones, and decides what is left from there."""
    taken: list[TakenOver] = []
    for start in range(0, len(pairs), ROWS_PER_STATEMENT):
        taken += await copies.take_over(transaction, pairs[start : start + ROWS_PER_STATEMENT])
    sources = dict(pairs)
    changes = [
        note_task(row.id, row.run_id, row.namespace, "pending", row.status, {"taken_over_from": sources[row.id]})
        for row in taken
    ]
    # What waits is counted from scratch, so these ends are counted for the runs alone.
    ended = [Ended(row.run_id, row.task_id, row.status, 0, row.is_teardown, -1) for row in taken]
    ready = list(ready)
    for run in runs:
        decided = await decide_again(core, transaction, run)
        changes += decided.changes
        ended += decided.ended
        ready += decided.ready
    return changes + await advance(core, transaction, ended, ready)
