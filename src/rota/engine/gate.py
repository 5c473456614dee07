"""The gate: what the engine does with task runs that are ready, before a worker may claim them.

It runs in the transaction that queued them, so nobody sees them before it has decided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rota.domain.condition import read_condition
from rota.domain.spec import WORKER_KINDS
from rota.domain.states import TaskState
from rota.domain.work import ErrorType
from rota.engine.core import Core, Ended, GateReport, ReadyTask, TaskDefinition
from rota.engine.expressions import ExpressionFailed
from rota.engine.queueing import stay
from rota.engine.record import note_task
from rota.engine.render import make_values
from rota.engine.templates import EVALUATION_ERRORS
from rota.store import gates, outputs
from rota.store.database import Transaction
from rota.store.definitions import ROWS_PER_STATEMENT
from rota.store.gates import Hold, ReadyRow, Verdict
from rota.store.wakeups import Topic

# The starter of tasks that are mapped, whatever their kind.
MAP = "map"


class Queued(Protocol):
    """A task run that has just been queued."""

    @property
    def id(self) -> str: ...
    @property
    def task_id(self) -> str: ...
    @property
    def is_gated(self) -> bool: ...


async def pass_gate(core: Core, transaction: Transaction, task_run_ids: Sequence[str]) -> GateReport:
    """Decides about queued task runs that are gated: each stays queued, ends, or is held. Their runs are locked."""
    report = GateReport()
    for start in range(0, len(task_run_ids), ROWS_PER_STATEMENT):
        part = task_run_ids[start : start + ROWS_PER_STATEMENT]
        report.add(await _pass_some(core, transaction, part))
    return report


async def find_started_again(core: Core, transaction: Transaction, queued: Iterable[Queued]) -> list[str]:
    """Which of these retries the engine has to look at, or to start because no worker will."""
    gated = [row for row in queued if row.is_gated]
    tasks = await core.find_tasks(transaction, [row.task_id for row in gated]) if gated else {}
    return [row.id for row in gated if tasks[row.task_id].has_gate_again]


async def _pass_some(core: Core, transaction: Transaction, task_run_ids: Sequence[str]) -> GateReport:
    ready = await make_ready(core, transaction, await gates.read_ready(transaction, task_run_ids))
    verdicts: list[tuple[ReadyTask, Verdict]] = []
    going: dict[str, list[ReadyTask]] = defaultdict(list)
    staying: list[ReadyTask] = []
    for item in ready:
        verdict = decide_condition(item)
        if verdict is not None:
            verdicts.append((item, verdict))
        elif (kind := _choose_starter(item)) in core.starters:
            going[kind].append(item)
        else:
            staying.append(item)
    verdicts += await stay(transaction, staying)
    report = await close(transaction, verdicts)
    for kind, items in going.items():
        report.add(await core.starters[kind](core, transaction, items))
    return report


def _choose_starter(item: ReadyTask) -> str:
    return MAP if item.task.mapping is not None and item.row.map_index < 0 else item.task.kind


def decide_condition(item: ReadyTask) -> Verdict | None:
    """How the task run ends by its `when`, or None if it goes on. A retry is not asked again."""
    condition = item.task.condition
    # A mapped task that was started before goes on with the items that it has.
    is_retry = item.row.failure_count or (item.task.mapping is not None and item.row.attempt)
    if condition is None or is_retry or item.row.map_index >= 0:
        return None
    try:
        is_wanted = read_condition(condition.evaluate(item.values))
    except (ExpressionFailed, ValueError) as error:
        reason = str(error) if isinstance(error, ExpressionFailed) else f"{condition.text}: {error}"
        return Verdict(item.row.id, TaskState.FAILED, ErrorType.BAD_TASK, f"when: {reason}")
    return None if is_wanted else Verdict(item.row.id, TaskState.SKIPPED, error=f"when: {condition.text} is false")


async def make_ready(core: Core, transaction: Transaction, rows: Sequence[ReadyRow]) -> list[ReadyTask]:
    """These with the values that their expressions and templates may use."""
    tasks = await core.find_tasks(transaction, [row.task_id for row in rows])
    facts = await core.find_run_facts(transaction, [row.run_id for row in rows])
    wanted = {(row.run_id, name) for row in rows for name in _find_upstreams(tasks[row.task_id])}
    known = await outputs.read_outputs(transaction, sorted(wanted)) if wanted else {}
    return [_make_ready(row, tasks[row.task_id], facts[row.run_id], known) for row in rows]


def _make_ready(row: ReadyRow, task: TaskDefinition, facts: Any, known: Mapping[str, Any]) -> ReadyTask:
    return ReadyTask(row, task, make_values(row, task, facts, known.get(row.run_id, {}), row.item))


def _find_upstreams(task: TaskDefinition) -> set[str]:
    """The tasks whose outputs the gate needs."""
    found = set(task.condition.upstreams) if task.condition else set()
    found |= task.key.upstreams if task.key else frozenset()
    found |= task.mapping.upstreams if task.mapping else set()
    if task.kind not in WORKER_KINDS and task.template is not None:
        found |= task.template.upstreams
    return found


async def close(transaction: Transaction, verdicts: Sequence[tuple[ReadyTask, Verdict]]) -> GateReport:
    """Ends queued task runs as the verdicts say."""
    report = GateReport()
    if not verdicts:
        return report
    closed = await gates.close_ready(transaction, [verdict for _item, verdict in verdicts])
    for item, verdict in verdicts:
        if verdict.task_run_id in closed:
            report.ended.append(_end(item.row, verdict.status))
            report.changes.append(_note(item.row, "queued", verdict))
    return report


async def start_held(
    transaction: Transaction, ready: Sequence[ReadyTask], make_hold: Callable[[ReadyTask, Mapping[str, Any]], Hold]
) -> GateReport:
    """Holds each as `make_hold` says of its rendered definition; what raises ValueError there fails with the reason."""
    holds: list[tuple[ReadyTask, Hold]] = []
    verdicts: list[tuple[ReadyTask, Verdict]] = []
    for item in ready:
        try:
            holds.append((item, make_hold(item, render(item))))
        except ValueError as error:
            verdicts.append((item, Verdict(item.row.id, TaskState.FAILED, ErrorType.BAD_TASK, str(error))))
    report = await close(transaction, verdicts)
    report.add(await hold(transaction, holds))
    return report


def render(item: ReadyTask) -> Mapping[str, Any]:
    """Its definition with all templates rendered. Raises ValueError."""
    template = item.task.template
    try:
        return item.task.document if template is None else template.render(item.task.document, item.values)
    except EVALUATION_ERRORS as error:
        raise ValueError(f"a template cannot be rendered: {error}") from error


async def hold(transaction: Transaction, holds: Sequence[tuple[ReadyTask, Hold]]) -> GateReport:
    """Starts queued task runs that the engine looks after from now on."""
    report = GateReport()
    held = await gates.hold(transaction, [item for _ready, item in holds]) if holds else {}
    if any(item.due_at is not None or item.due_seconds is not None for _ready, item in holds):
        # Its time may come before anything else's.
        transaction.wake(Topic.SCHEDULES)
    for ready, item in holds:
        if ready.row.id in held:
            row = ready.row
            details = {"attempt": held[row.id], "holder": item.holder}
            report.changes.append(note_task(row.id, row.run_id, row.namespace, "queued", "running", details))
    return report


def _end(row: ReadyRow, status: str) -> Ended:
    return Ended(row.run_id, row.task_id, status, row.downstream_count, row.is_teardown, row.map_index)


def _note(row: ReadyRow, old: str, verdict: Verdict) -> Any:
    details: dict[str, Any] = {"reason": verdict.error} if verdict.error else {}
    if verdict.error_type:
        details["error_type"] = verdict.error_type
    return note_task(row.id, row.run_id, row.namespace, old, verdict.status, details or None)
