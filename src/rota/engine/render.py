"""Makes of claimed task runs what a worker needs to execute them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rota.domain.states import TaskState
from rota.domain.work import Assignment, ErrorType
from rota.engine.core import Core, TaskDefinition
from rota.engine.params import describe_run
from rota.engine.secrets import SecretPlace, choose_secrets, list_masks, mask, read_secrets
from rota.engine.templates import EVALUATION_ERRORS
from rota.engine.vault import CannotOpen
from rota.store import maps, outputs
from rota.store.claims import Claimed
from rota.store.database import Transaction
from rota.store.gates import ReadyRow
from rota.store.outcomes import Outcome
from rota.store.workflow_runs import RunFacts

Secrets = Mapping[SecretPlace, str | CannotOpen]


async def make_assignments(
    core: Core, transaction: Transaction, claimed: Sequence[Claimed], incarnation: str
) -> tuple[list[Assignment], list[Outcome]]:
    """An assignment for each, templates rendered; and the failures of those whose templates cannot be."""
    tasks = await core.find_tasks(transaction, [row.task_id for row in claimed])
    templated = [row for row in claimed if tasks[row.task_id].template is not None]
    facts = await core.find_run_facts(transaction, [row.run_id for row in templated]) if templated else {}
    wanted = {
        (row.run_id, name)
        for row in templated
        if (template := tasks[row.task_id].template) is not None
        for name in template.upstreams
    }
    known = await outputs.read_outputs(transaction, sorted(wanted)) if wanted else {}
    mapped = [row.id for row in templated if row.map_index >= 0]
    items = await maps.read_values(transaction, mapped) if mapped else {}
    hidden = await _read_secrets(core, transaction, tasks.values())
    assignments: list[Assignment] = []
    refused: list[Outcome] = []
    for row in claimed:
        task = tasks[row.task_id]
        if task.template is None:
            assignments.append(_make_assignment(row, task, task.document, core.options.lease_seconds))
            continue
        masks: tuple[str, ...] = ()
        try:
            chosen = choose_secrets(task.namespace, task.template.secrets, hidden)
            masks = list_masks(chosen.values())
            values = make_values(row, task, facts[row.run_id], known.get(row.run_id, {}), items.get(row.id))
            document = task.template.render(task.document, values | {"secrets": chosen})
        except EVALUATION_ERRORS as error:
            refused.append(_refuse(row, incarnation, mask(str(error), masks)))
            continue
        assignments.append(_make_assignment(row, task, document, core.options.lease_seconds, masks))
    return assignments, refused


async def _read_secrets(core: Core, transaction: Transaction, tasks: Iterable[TaskDefinition]) -> Secrets:
    """The secrets that these tasks name. Nothing is remembered: a value that was put is the one that counts."""
    places = {(task.namespace, name) for task in tasks if task.template is not None for name in task.template.secrets}
    return await read_secrets(core, transaction, places) if places else {}


def make_values(
    row: Claimed | ReadyRow, task: TaskDefinition, facts: RunFacts, upstreams: Mapping[str, Any], item: Any = None
) -> dict[str, Any]:
    """What templates and expressions of a task run may use."""
    of_item = {} if row.map_index < 0 else {"item": item, "map_index": row.map_index}
    return {
        **of_item,
        **describe_run(row.run_id, row.logical_date, task.workflow_name, task.namespace),
        "params": facts.params,
        "tasks": upstreams,
        "secrets": {},
        "task": {"name": task.name, "attempt": row.attempt},
    }


def _refuse(row: Claimed, incarnation: str, error: str) -> Outcome:
    return Outcome(
        row.id,
        row.attempt,
        incarnation,
        TaskState.FAILED,
        error_type=ErrorType.BAD_TASK,
        error=f"a template cannot be rendered: {error}",
        is_failure=1,
    )


def _make_assignment(
    row: Claimed,
    task: TaskDefinition,
    document: Mapping[str, Any],
    lease_seconds: float,
    masks: tuple[str, ...] = (),
) -> Assignment:
    return Assignment(
        task_run_id=row.id,
        attempt=row.attempt,
        run_id=row.run_id,
        workflow=task.workflow_name,
        task=task.name,
        kind=task.kind,
        spec=document,
        timeout_seconds=row.timeout_seconds,
        lease_seconds=lease_seconds,
        idempotency_key=f"{row.run_id}.{task.name}" + (f".{row.map_index}" if row.map_index >= 0 else ""),
        logical_date=row.logical_date.isoformat(),
        map_index=row.map_index,
        try_number=row.failure_count + 1,
        secrets=masks,
    )
