"""define: saves workflows. A version is made only when the content changed, and never changes afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import Conflict, FieldError, InvalidInput, StaleVersion
from rota.domain.graph import ancestors, build_graph
from rota.domain.spec import TaskSpec, WorkflowSpec
from rota.domain.spec_read import has_template
from rota.domain.spec_task import task_to_dict
from rota.domain.spec_write import content_hash, hash_definition, workflow_to_dict
from rota.engine.advance import start_turns
from rota.engine.arming import save_schedules
from rota.engine.core import Core
from rota.engine.expressions import check_texts, find_expressions
from rota.engine.linkage import save_links
from rota.engine.params import check_defaults
from rota.engine.record import record
from rota.store import definitions, lanes, schedules, workflow_runs
from rota.store.database import Transaction
from rota.store.definitions import NewVersion, WorkflowRow
from rota.store.encoding import encode_json
from rota.store.lanes import Lane
from rota.store.wakeups import Topic


@dataclass(frozen=True, slots=True)
class Defined:
    """The workflow that was saved."""

    id: str
    version: int
    is_new: bool
    is_changed: bool


async def create_workflow(core: Core, transaction: Transaction, spec: WorkflowSpec) -> Defined:
    """Saves a new workflow or job; the name of a workflow must be free in its namespace."""
    if spec.kind == "workflow" and await definitions.find_workflow(transaction, spec.namespace, name=spec.name):
        raise Conflict(f"there is a workflow named {spec.name} already: choose another name, or PUT to change it")
    created = await _insert(core, transaction, spec)
    if created is None:
        raise Conflict(f"there is a workflow named {spec.name} already: choose another name, or PUT to change it")
    return created


async def apply_workflow(
    core: Core, transaction: Transaction, spec: WorkflowSpec, *, expected_version: int | None = None
) -> Defined:
    """Makes the workflow of this name be as `spec` says, whether it exists or not."""
    found = await _lock_workflow(transaction, spec)
    if found is None:
        created = await _insert(core, transaction, spec)
        if created is not None:
            return created
        # Another node has just made it.
        found = await _lock_workflow(transaction, spec)
        if found is None:
            raise Conflict(f"workflow {spec.name} is being made and deleted by others: try again")
    if expected_version is not None and expected_version != found.version:
        raise StaleVersion(f"workflow {spec.name} was changed meanwhile: read it again (now at {found.version})")
    return await _replace(core, transaction, found, spec)


async def _lock_workflow(transaction: Transaction, spec: WorkflowSpec) -> WorkflowRow | None:
    """The workflow of this name. Whoever fires holds schedules and then their workflows, so the same is done here."""
    found = await definitions.find_workflow(transaction, spec.namespace, name=spec.name)
    if found is None:
        return None
    await schedules.read_schedules(transaction, found.id, locks=True)
    return await definitions.find_workflow(transaction, spec.namespace, name=spec.name, locks=True)


async def _insert(core: Core, transaction: Transaction, spec: WorkflowSpec) -> Defined | None:
    """Saves a new workflow; None if another node has just taken its name."""
    workflow_id = core.new_ids(1)[0]
    is_new = await definitions.insert_workflow(
        transaction,
        {
            "new_id": workflow_id,
            "namespace": spec.namespace,
            "name": spec.name or workflow_id,
            "kind": spec.kind,
            **_facts(spec),
        },
    )
    if not is_new:
        return None
    if spec.tasks:
        await _add_version(core, transaction, workflow_id, 1, spec)
    await save_schedules(core, transaction, workflow_id, spec)
    return Defined(workflow_id, 1 if spec.tasks else 0, is_new=True, is_changed=True)


async def _replace(core: Core, transaction: Transaction, found: WorkflowRow, spec: WorkflowSpec) -> Defined:
    known = (
        await definitions.read_content_hash(transaction, found.current_version_id or "")
        if found.current_version_id
        else None
    )
    is_changed = bool(spec.tasks) and known != content_hash(spec)
    number = found.current_version + 1 if is_changed else found.current_version
    facts = _facts(spec)
    if is_changed:
        await _add_version(core, transaction, found.id, number, spec)
    is_rescheduled = await save_schedules(core, transaction, found.id, spec)
    is_same = all(getattr(found, name) == value for name, value in facts.items())
    if is_same and not is_changed and not is_rescheduled:
        return Defined(found.id, number, is_new=False, is_changed=False)
    await definitions.update_workflow(transaction, found.id, facts)
    # There may be more turns than before.
    await record(core, transaction, await start_turns(core, transaction, found.id))
    return Defined(found.id, number, is_new=False, is_changed=is_changed)


def _facts(spec: WorkflowSpec) -> dict[str, Any]:
    return {
        "description": spec.description,
        "tags": list(spec.tags),
        "is_active": spec.is_active,
        "max_active_runs": spec.max_active_runs,
        "max_active_tasks": spec.max_active_tasks,
    }


async def _add_version(core: Core, transaction: Transaction, workflow_id: str, number: int, spec: WorkflowSpec) -> None:
    _require_templates(spec)
    await _require_pools(transaction, spec)
    await save_links(transaction, workflow_id, spec)
    lane_ids = await lanes.ensure_lanes(transaction, choose_lanes(workflow_id, spec))
    version = plan_version(core, workflow_id, number, spec, lane_ids)
    await definitions.insert_versions(transaction, [version])
    await definitions.update_workflow(
        transaction, workflow_id, {"current_version": number, "current_version_id": version.id}
    )


def plan_version(
    core: Core, workflow_id: str, number: int, spec: WorkflowSpec, lane_ids: Mapping[Lane, int]
) -> NewVersion:
    """The rows of a version; `lane_ids` holds at least the lanes of its tasks."""
    document = workflow_to_dict(spec)
    version_id, *task_ids = core.new_ids(1 + len(spec.tasks))
    ids = {task.name: task_id for task, task_id in zip(spec.tasks, task_ids, strict=True)}
    downstream = dict.fromkeys(ids, 0)
    for task in spec.tasks:
        for name in task.depends_on:
            downstream[name] += 1
    task_rows = [
        (
            ids[task.name],
            workflow_id,
            version_id,
            position,
            *_task_columns(task, written),
            lane_ids[lane],
            lane.is_limited,
            task.is_teardown,
            task.is_gated,
            task.is_branch,
            len(task.depends_on),
            downstream[task.name],
        )
        for position, (task, written, lane) in enumerate(
            zip(spec.tasks, document["tasks"], choose_lanes(workflow_id, spec), strict=True)
        )
    ]
    pairs = [(ids[task.name], ids[name]) for task in spec.tasks for name in task.depends_on]
    dependencies = [(row_id, version_id, *pair) for row_id, pair in zip(core.new_ids(len(pairs)), pairs, strict=True)]
    hashed = hash_definition(document)
    params = encode_json(document["params"]) if spec.params else None
    written = encode_json(document)
    row = (version_id, workflow_id, number, hashed, written, spec.run_timeout_seconds, params, spec.is_watched)
    return NewVersion(row, task_rows, dependencies)


def choose_lanes(workflow_id: str, spec: WorkflowSpec) -> list[Lane]:
    """The lane of each task."""
    return [_choose_lane(workflow_id, spec, task) for task in spec.tasks]


def _choose_lane(workflow_id: str, spec: WorkflowSpec, task: TaskSpec) -> Lane:
    return Lane(
        namespace=spec.namespace,
        queue=task.queue,
        kind=task.kind,
        labels=tuple(sorted(task.labels.items())),
        pool=task.pool,
        workflow_id=workflow_id if spec.max_active_tasks is not None else None,
        pool_slots=task.pool_slots,
    )


def _task_columns(task: TaskSpec, document: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        task.name,
        task.kind,
        encode_json(document),
        task.trigger_rule,
        task.retry.retry_count,
        task.max_deliveries,
        task.timeout_seconds,
        task.priority,
    )


def _require_templates(spec: WorkflowSpec) -> None:
    documents = [(position, task, task_to_dict(task)) for position, task in enumerate(spec.tasks)]
    templated = [entry for entry in documents if find_expressions(entry[2]) or has_template(entry[2])]
    if not templated and not spec.params:
        return
    graph = build_graph([task.name for task in spec.tasks], {task.name: task.depends_on for task in spec.tasks})
    errors = check_defaults(spec.params) + [
        error
        for position, task, document in templated
        for error in check_texts(document, f"tasks[{position}]", ancestors(graph, [task.name]) - {task.name})
    ]
    if errors:
        raise InvalidInput.of(errors)


async def _require_pools(transaction: Transaction, spec: WorkflowSpec) -> None:
    wanted = {task.pool for task in spec.tasks if task.pool is not None}
    existing = await lanes.find_pools(transaction, spec.namespace, wanted) if wanted else set()
    errors = [
        FieldError(f"tasks[{position}].pool", explain_missing_pool(task.pool))
        for position, task in enumerate(spec.tasks)
        if task.pool is not None and task.pool not in existing
    ]
    if errors:
        raise InvalidInput.of(errors)


def explain_missing_pool(pool: str) -> str:
    return f"there is no pool {pool}: create it first (PUT /pools/{pool})"


async def delete_workflow(_core: Core, transaction: Transaction, workflow_id: str) -> None:
    """Deletes a workflow with its past; refused while runs of it are open."""
    await schedules.read_schedules(transaction, workflow_id, locks=True)
    await definitions.lock_for_deletion(transaction, workflow_id)
    if await workflow_runs.has_open_runs(transaction, workflow_id):
        raise Conflict("the workflow has runs that have not ended: cancel them first")
    await definitions.delete_workflow(transaction, workflow_id)
    transaction.wake(Topic.SCHEDULES)
