"""rerun: a run that has ended is repeated, wholly or in part, as a new run of the same logical date and parameters.

States that are final stay so: what had succeeded cannot be executed again in its own run, only in a new one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rota.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from rota.domain.graph import build_graph, descendants
from rota.domain.spec_read import Faults
from rota.domain.states import RUN_FINAL, TaskState
from rota.engine.core import Core
from rota.engine.retry import retry_run
from rota.engine.submit import RunRequest, submit
from rota.store import definitions, interventions, run_labels, workflow_runs
from rota.store.database import Transaction
from rota.store.definitions import TaskRow
from rota.store.interventions import RunTask
from rota.store.reads import reasons

# The number of a version, that of the run, or the one that new runs get.
VersionWish = int | Literal["same", "current"]
_DONE = (TaskState.SUCCESS, TaskState.SKIPPED)


@dataclass(frozen=True, slots=True)
class Rerun:
    """What is to be executed again: the named tasks and everything below them; what has not been done; or all."""

    part: Literal["whole", "unfinished", "tasks"] = "whole"
    tasks: Sequence[str] = ()
    version: VersionWish = "same"
    note: str = ""


@dataclass(frozen=True, slots=True)
class RerunReport:
    """The run that executes it, which is a new one or still the old one; how many task runs are queued, or wait."""

    run_id: str
    is_new: bool
    queued: int
    waiting: int


async def retry_or_rerun(core: Core, transaction: Transaction, run_id: str, wanted: Rerun) -> RerunReport:
    """Goes on in the same run where only failed task runs are tried again, and makes a new run where that cannot be."""
    run = await _lock_run(transaction, run_id)
    version_id = await _find_version_id(transaction, run, wanted.version)
    if wanted.part != "whole" and version_id == run.version_id:
        rows = await interventions.lock_task_runs(transaction, run_id)
        named = None
        if wanted.part == "tasks":
            tasks = await definitions.read_version_tasks(transaction, version_id)
            _require_tasks(wanted.tasks, [task.name for task in tasks])
            ids = {task.id for task in tasks if task.name in wanted.tasks}
            named = [row for row in rows if row.task_id in ids and row.map_index < 0]
        if _can_stay(run, named):
            report = await retry_run(core, transaction, run_id, None if named is None else [row.id for row in named])
            return RerunReport(run_id, False, report.queued, report.waiting)
    return await rerun_run(core, transaction, run_id, wanted)


def _can_stay(run: Any, named: Sequence[RunTask] | None) -> bool:
    """Whether the states allow it to go on in its own run."""
    if named is None:
        # A run that is cancelled stays cancelled.
        return bool(run.status != "cancelled")
    # Of a mapped task the items that failed are tried again.
    tasks = [row for row in named if row.map_index < 0]
    return run.status in ("failed", "running") and all(row.status == TaskState.FAILED for row in tasks)


async def rerun_run(core: Core, transaction: Transaction, run_id: str, wanted: Rerun) -> RerunReport:
    """Makes a new run of what an older one was about. Of a part of it the rest is taken over, with its outputs."""
    run = await _lock_run(transaction, run_id)
    if run.status not in RUN_FINAL:
        raise Conflict(f"workflow run {run_id} is {run.status}: wait for its end, or cancel it, before it is repeated")
    version_id = await _find_version_id(transaction, run, wanted.version)
    facts = (await core.find_run_facts(transaction, [run_id]))[run_id]
    written = await run_labels.lock_annotations(transaction, run_id)
    copies = {} if wanted.part == "whole" else await _choose_copies(transaction, run, version_id, wanted)
    request = RunRequest(
        run.workflow_id,
        trigger="rerun",
        logical_at=facts.logical_date,
        params=facts.params,
        labels=(written.labels if written else None) or {},
        note=wanted.note,
        version_id=version_id,
        rerun_of=run_id,
        copies=copies,
    )
    (made,) = await submit(core, transaction, [request])
    counts = await reasons.read_status_counts(transaction, str(made.id))
    queued, waiting = (counts.get(status, (0, ""))[0] for status in ("queued", "pending"))
    return RerunReport(str(made.id), True, queued, waiting)


async def _lock_run(transaction: Transaction, run_id: str) -> Any:
    run = await workflow_runs.lock_run(transaction, run_id)
    if run is None:
        raise NotFound(f"there is no workflow run {run_id}")
    return run


async def _find_version_id(transaction: Transaction, run: Any, wanted: VersionWish) -> str:
    if wanted == "same":
        return str(run.version_id)
    if wanted == "current":
        workflow = (await definitions.read_workflows(transaction, [run.workflow_id]))[run.workflow_id]
        return str(workflow.current_version_id)
    found = await definitions.find_version_id(transaction, run.workflow_id, wanted)
    if found is None:
        raise InvalidInput.of([FieldError("version", f"there is no version {wanted} of this workflow")])
    return found


async def _choose_copies(transaction: Transaction, run: Any, version_id: str, wanted: Rerun) -> Mapping[str, str]:
    """For tasks of the version that are not executed again: the task run whose result is taken over, by task id."""
    tasks = await definitions.read_version_tasks(transaction, version_id)
    old = await _read_old(transaction, run)
    names = [task.name for task in tasks]
    if wanted.part == "tasks":
        _require_tasks(wanted.tasks, names)
        chosen = set(wanted.tasks)
    else:
        chosen = {name for name in names if name in old and old[name].status not in _DONE}
    # What the old run did not have has no result either.
    chosen |= {name for name in names if name not in old}
    if not chosen:
        raise Conflict(f"workflow run {run.id} is {run.status}: nothing in it is left to be done")
    graph = build_graph(names, await _read_upstreams(transaction, version_id, tasks))
    again = descendants(graph, chosen)
    return {task.id: old[task.name].id for task in tasks if task.name not in again}


async def _read_old(transaction: Transaction, run: Any) -> dict[str, RunTask]:
    """The task runs of the old run by name, without the items of mapped tasks."""
    names = {task.id: task.name for task in await definitions.read_version_tasks(transaction, run.version_id)}
    rows = await interventions.lock_task_runs(transaction, run.id)
    return {names[row.task_id]: row for row in rows if row.map_index < 0}


async def _read_upstreams(
    transaction: Transaction, version_id: str, tasks: Sequence[TaskRow]
) -> Mapping[str, Sequence[str]]:
    names = {task.id: task.name for task in tasks}
    found: dict[str, list[str]] = defaultdict(list)
    for task_id, upstream_id in await definitions.read_dependencies(transaction, version_id):
        found[names[task_id]].append(names[upstream_id])
    return found


def _require_tasks(wanted: Sequence[str], known: Sequence[str]) -> None:
    faults = Faults()
    for index, name in enumerate(wanted):
        if name not in known:
            faults.add(f"tasks[{index}]", f"there is no task {name!r}{faults.suggest(name, known)}")
    faults.raise_if_any()
