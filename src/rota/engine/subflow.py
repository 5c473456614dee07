"""Sub-workflows: a task that starts a run of another workflow, and ends like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.states import Holder, TaskState
from rota.domain.work import ErrorType
from rota.engine.core import MAX_DEPTH, Core, Ended, GateReport, ReadyTask
from rota.engine.gate import close, hold, render
from rota.engine.record import note_task
from rota.engine.submit import RunRequest, SubmittedRun, submit
from rota.store import definitions, outcomes
from rota.store.database import Transaction
from rota.store.definitions import WorkflowRow
from rota.store.encoding import encode_json
from rota.store.gates import Hold, Verdict
from rota.store.outcomes import Outcome
from rota.store.workflow_runs import Parent

Key = tuple[str, str]


class _Refused(Exception):
    """The run cannot be started; says why."""


async def start_calls(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    """Creates a run for each task run and holds that until it has ended, or ends it at once if it does not wait.

    The new runs start in a transaction of their own, right after this one.
    """
    known = await definitions.find_named(
        transaction, {(item.row.namespace, item.task.document["workflow"]) for item in ready}
    )
    lineages = await _find_lineages(core, transaction, {item.row.run_id for item in ready})
    going: list[tuple[ReadyTask, RunRequest]] = []
    refused: list[tuple[ReadyTask, Verdict]] = []
    for item in ready:
        try:
            going.append((item, _plan(item, known, lineages[item.row.run_id])))
        except (_Refused, ValueError) as error:
            refused.append((item, _refuse(item, str(error))))
    submitted = await submit(core, transaction, [request for _item, request in going]) if going else []
    answers = [(item, run) for (item, _request), run in zip(going, submitted, strict=True)]
    refused += [(item, _refuse(item, run.refusal.detail)) for item, run in answers if run.refusal is not None]
    report = await close(transaction, refused)
    started = [(item, run) for item, run in answers if run.id is not None]
    report.add(await hold(transaction, [(item, Hold(item.row.id, Holder.RUN)) for item, _run in started]))
    report.add(await _let_go(transaction, [pair for pair in started if not _waits(pair[0])]))
    return report


def _waits(item: ReadyTask) -> bool:
    return item.task.document.get("wait_for_result") is not False


def _refuse(item: ReadyTask, reason: str) -> Verdict:
    return Verdict(item.row.id, TaskState.FAILED, ErrorType.BAD_TASK, reason)


async def _find_lineages(core: Core, transaction: Transaction, run_ids: set[str]) -> dict[str, list[str]]:
    """For each run the workflows of itself and of all that stand above it, from below."""
    lineages: dict[str, list[str]] = {run_id: [] for run_id in run_ids}
    current = {run_id: run_id for run_id in run_ids}
    while current:
        facts = await core.find_run_facts(transaction, list(current.values()))
        above = {}
        for run_id, ancestor_id in current.items():
            # One that is older than its retention is gone.
            if ancestor_id in facts:
                lineages[run_id].append(facts[ancestor_id].workflow_id)
                parent_run_id = facts[ancestor_id].parent_run_id
                if parent_run_id is not None:
                    above[run_id] = parent_run_id
        current = above
    return lineages


def _plan(item: ReadyTask, known: Mapping[Key, WorkflowRow], lineage: Sequence[str]) -> RunRequest:
    name = item.task.document["workflow"]
    workflow = known.get((item.row.namespace, name))
    if workflow is None:
        raise _Refused(f"there is no workflow {name} in namespace {item.row.namespace}: save it first")
    if workflow.current_version_id is None:
        raise _Refused(f"workflow {name} has no tasks yet: add tasks before it is run")
    if workflow.id in lineage:
        raise _Refused(f"workflow {name} has started this one: a workflow cannot start itself, alone or through others")
    if len(lineage) > MAX_DEPTH:
        raise _Refused(f"runs start one another {MAX_DEPTH} times in a row at most")
    params = render(item).get("params", {})
    try:
        encode_json(params)
    except (TypeError, RecursionError) as error:
        raise _Refused(f"params: cannot be written as JSON: {error}") from error
    return RunRequest(
        workflow.id,
        trigger="workflow",
        logical_at=item.row.logical_date,
        params=params,
        parent=Parent(item.row.run_id, len(lineage), item.row.id, item.row.attempt + 1),
        timeout_seconds=item.task.document.get("timeout_seconds") if _waits(item) else None,
        tells_refusal=True,
    )


async def _let_go(transaction: Transaction, free: Sequence[tuple[ReadyTask, SubmittedRun]]) -> GateReport:
    """Ends held task runs that do not wait for the runs they have started."""
    report = GateReport()
    if not free:
        return report
    landed = await outcomes.finish_attempts(
        transaction,
        [
            Outcome(
                item.row.id,
                item.row.attempt + 1,
                "",
                TaskState.SUCCESS,
                output_json=encode_json({"run_id": run.id}),
                holder=Holder.RUN,
            )
            for item, run in free
        ],
    )
    for row in landed:
        report.ended.append(
            Ended(row.run_id, row.task_id, row.status, row.downstream_count, row.is_teardown, row.map_index)
        )
        details = {"attempt": row.attempt}
        report.changes.append(note_task(row.id, row.run_id, row.namespace, "running", row.status, details))
    return report
