"""Statements on workflows, their versions, tasks and dependencies. Versions never change once written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Float,
    Insert,
    Integer,
    String,
    Text,
    bindparam,
    case,
    delete,
    insert,
    literal,
    select,
    update,
)

from rota.domain.ids import is_uuid
from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, batch, constant, insert_new, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_dependencies, tasks, workflow_versions, workflows

_w = workflows.c


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow as stored, without its tasks."""

    id: str
    namespace: str
    name: str
    kind: str
    description: str
    tags: list[str]
    is_active: bool
    max_active_runs: int | None
    max_active_tasks: int | None
    current_version: int
    current_version_id: str | None
    version: int
    created_at: datetime
    updated_at: datetime


_COLUMNS = [_w[name] for name in WorkflowRow.__dataclass_fields__]
_named = bindparam("wanted", type_=String())
_BY_ID = select(*_COLUMNS).where(
    _w.id == bindparam("wanted_id", type_=Id()), _w.namespace == bindparam("wanted_namespace", type_=String())
)
_BY_NAME = select(*_COLUMNS).where(
    _w.name == _named, _w.namespace == bindparam("wanted_namespace", type_=String()), _w.kind == "workflow"
)


async def find_workflow(
    transaction: Transaction,
    namespace: str,
    *,
    workflow_id: str | None = None,
    name: str | None = None,
    locks: bool = False,
) -> WorkflowRow | None:
    """A workflow by id or by name, held until the commit if asked."""
    if workflow_id is not None:
        statement, wanted = _BY_ID, {"wanted_id": workflow_id}
    else:
        statement, wanted = _BY_NAME, {"wanted": name or ""}
    if locks:
        statement = statement.with_for_update(key_share=True)
    row = await transaction.row(statement, {**wanted, "wanted_namespace": namespace})
    return WorkflowRow(*row) if row else None


_INSERT = insert_new(
    workflows,
    {
        "id": bindparam("new_id", type_=Id()),
        "created_at": NOW,
        "updated_at": NOW,
        **{
            name: bindparam(name, type_=_w[name].type)
            for name in (
                *("namespace", "name", "kind", "description", "tags", "is_active"),
                *("max_active_runs", "max_active_tasks"),
            )
        },
    },
).returning(_w.id)


async def insert_workflow(transaction: Transaction, values: dict[str, Any]) -> bool:
    """Creates a workflow that has no version yet, unless its name is taken; says whether it did."""
    return await transaction.row(_INSERT, values) is not None


_new_jobs = batch(
    "new_jobs",
    id=Id(),
    namespace=String(200),
    name=String(200),
    description=Text(),
    tags=Text(),
    is_active=Boolean(),
    max_active_runs=Integer(),
    current_version_id=Id(),
)
_INSERT_JOBS = insert(workflows).from_select(
    [*_new_jobs.c.keys(), "kind", "current_version", "created_at", "updated_at"],
    select(*_new_jobs.c, constant("job"), literal(1), NOW, NOW),
)


async def insert_jobs(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Creates jobs at their first version: id, namespace, name, description, tags, activity, limit, version."""
    await _insert_rows(transaction, _INSERT_JOBS, "new_jobs", rows)


async def update_workflow(transaction: Transaction, workflow_id: str, values: dict[str, Any]) -> None:
    """Changes columns of a workflow and counts the change."""
    if values.get("is_active"):
        values = {**values, "resumed_at": _RESUMED_AT}
    statement = update(workflows).where(_w.id == workflow_id).values(**values, version=_w.version + 1, updated_at=NOW)
    await transaction.run(statement)


_RESUMED_AT = case((_w.is_active, _w.resumed_at), else_=NOW)
_wanted_activity = bindparam("wanted_activity", type_=Boolean())
_SET_ACTIVE = (
    update(workflows)
    .where(_w.id == bindparam("wanted_id", type_=Id()), _w.is_active != _wanted_activity)
    .values(
        is_active=_wanted_activity,
        resumed_at=case((_wanted_activity, NOW), else_=_w.resumed_at),
        version=_w.version + 1,
        updated_at=NOW,
    )
    .returning(_w.id)
)


async def set_active(transaction: Transaction, workflow_id: str, *, is_active: bool) -> bool:
    """Pauses or unpauses a workflow; whether it was otherwise before."""
    return await transaction.row(_SET_ACTIVE, {"wanted_id": workflow_id, "wanted_activity": is_active}) is not None


_IS_ACTIVE = select(_w.is_active).where(_w.id == bindparam("wanted_id", type_=Id()))


async def is_active(transaction: Transaction, workflow_id: str) -> bool:
    row = await transaction.row(_IS_ACTIVE, {"wanted_id": workflow_id})
    return row is not None and bool(row[0])


_LOCK_WHOLE = select(_w.id).where(_w.id == bindparam("wanted_id", type_=Id())).with_for_update()


async def lock_for_deletion(transaction: Transaction, workflow_id: str) -> None:
    """Waits for those who are about to create runs of a workflow, and keeps others from it until the commit."""
    await transaction.run(_LOCK_WHOLE, {"wanted_id": workflow_id})


async def delete_workflow(transaction: Transaction, workflow_id: str) -> None:
    """Deletes a workflow with all that belongs to it."""
    await transaction.run(delete(workflows).where(_w.id == workflow_id))


_new_versions = batch(
    "new_versions",
    id=Id(),
    workflow_id=Id(),
    number=Integer(),
    content_hash=String(64),
    spec=Text(),
    run_timeout_seconds=Float(),
    params=Text(),
    is_watched=Boolean(),
)
_INSERT_VERSIONS = insert(workflow_versions).from_select(
    [*_new_versions.c.keys(), "created_at"], select(*_new_versions.c, NOW)
)
_new_tasks = batch(
    "new_tasks",
    id=Id(),
    workflow_id=Id(),
    version_id=Id(),
    position=Integer(),
    name=String(200),
    kind=String(20),
    spec=Text(),
    trigger_rule=String(40),
    retry_count=Integer(),
    max_deliveries=Integer(),
    timeout_seconds=Float(),
    priority=Integer(),
    lane_id=Integer(),
    is_limited=Boolean(),
    is_teardown=Boolean(),
    is_gated=Boolean(),
    is_branch=Boolean(),
    upstream_count=Integer(),
    downstream_count=Integer(),
)
_INSERT_TASKS = insert(tasks).from_select([*_new_tasks.c.keys(), "created_at"], select(*_new_tasks.c, NOW))
_new_dependencies = batch("new_dependencies", id=Id(), version_id=Id(), task_id=Id(), depends_on_task_id=Id())
_INSERT_DEPENDENCIES = insert(task_dependencies).from_select(
    list(_new_dependencies.c.keys()), select(*_new_dependencies.c)
)
ROWS_PER_STATEMENT = 1000


@dataclass(frozen=True, slots=True)
class NewVersion:
    """The rows of a version: its own, those of its tasks and of their dependencies."""

    row: tuple[Any, ...]
    tasks: Sequence[tuple[Any, ...]]
    dependencies: Sequence[tuple[str, str, str, str]] = ()

    @property
    def id(self) -> str:
        return str(self.row[0])


async def insert_versions(transaction: Transaction, versions: Sequence[NewVersion]) -> None:
    """Writes versions with their tasks and dependencies."""
    await _insert_rows(transaction, _INSERT_VERSIONS, "new_versions", [version.row for version in versions])
    await _insert_rows(transaction, _INSERT_TASKS, "new_tasks", [row for new in versions for row in new.tasks])
    dependencies = [row for new in versions for row in new.dependencies]
    await _insert_rows(transaction, _INSERT_DEPENDENCIES, "new_dependencies", dependencies)


async def _insert_rows(
    transaction: Transaction, statement: Insert, parameter: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        await transaction.run(statement, {parameter: encode_rows(rows[start : start + ROWS_PER_STATEMENT])})


_v = workflow_versions.c
_HASH = select(_v.content_hash).where(_v.id == bindparam("version_id", type_=Id()))


async def read_content_hash(transaction: Transaction, version_id: str) -> str | None:
    row = await transaction.row(_HASH, {"version_id": version_id})
    return row.content_hash if row else None


_BY_NUMBER = select(_v.id).where(
    _v.workflow_id == bindparam("owner", type_=Id()), _v.number == bindparam("wanted_number", type_=Integer())
)


async def find_version_id(transaction: Transaction, workflow_id: str, number: int) -> str | None:
    """The id of a version by its number."""
    row = await transaction.row(_BY_NUMBER, {"owner": workflow_id, "wanted_number": number})
    return str(row.id) if row else None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of a version, as stored."""

    id: str
    version_id: str
    workflow_id: str
    position: int
    name: str
    kind: str
    spec: dict[str, Any]
    trigger_rule: str
    upstream_count: int
    is_teardown: bool
    is_gated: bool
    is_branch: bool


_TASK_COLUMNS = [tasks.c[name] for name in TaskRow.__dataclass_fields__]
_wanted_tasks = batch("wanted_tasks", id=Id())
_TASKS = select(*_TASK_COLUMNS).where(within(tasks.c.id, select(_wanted_tasks.c.id).scalar_subquery()))
_VERSIONS_TASKS = (
    select(
        tasks.c.id,
        tasks.c.version_id,
        tasks.c.upstream_count,
        tasks.c.trigger_rule,
        tasks.c.is_gated,
        tasks.c.is_branch,
    )
    .where(
        within(tasks.c.version_id, select(batch("tasked_versions", id=Id()).c.id).scalar_subquery()),
    )
    .order_by(tasks.c.version_id, tasks.c.position)
)


async def read_shapes(transaction: Transaction, version_ids: Sequence[str]) -> Sequence[Any]:
    """What creating runs needs to know of the tasks of these versions, in the order of their definitions."""
    parameters = {"tasked_versions": encode_rows([(version_id,) for version_id in version_ids])}
    return await transaction.rows(_VERSIONS_TASKS, parameters)


_VERSION_TASKS = (
    select(*_TASK_COLUMNS).where(tasks.c.version_id == bindparam("version_id", type_=Id())).order_by(tasks.c.position)
)


async def read_tasks(transaction: Transaction, task_ids: Sequence[str]) -> list[TaskRow]:
    parameters = {"wanted_tasks": encode_rows([(task_id,) for task_id in task_ids])}
    return [TaskRow(*row) for row in await transaction.rows(_TASKS, parameters)]


async def read_version_tasks(transaction: Transaction, version_id: str) -> list[TaskRow]:
    """The tasks of a version in the order of their definition."""
    return [TaskRow(*row) for row in await transaction.rows(_VERSION_TASKS, {"version_id": version_id})]


_DEPENDENCIES = select(task_dependencies.c.task_id, task_dependencies.c.depends_on_task_id).where(
    task_dependencies.c.version_id == bindparam("version_id", type_=Id())
)


async def read_dependencies(transaction: Transaction, version_id: str) -> list[tuple[str, str]]:
    """(task id, id of the task that it depends on), for a whole version."""
    return [(row[0], row[1]) for row in await transaction.rows(_DEPENDENCIES, {"version_id": version_id})]


_wanted_versions = batch("wanted_versions", id=Id())
_VERSION_FACTS = (
    select(
        _v.id,
        _v.workflow_id,
        _v.number,
        _v.run_timeout_seconds,
        _v.params,
        _v.is_watched,
        _w.name,
        _w.namespace,
        _w.kind,
    )
    .join(workflows, _w.id == _v.workflow_id)
    .where(within(_v.id, select(_wanted_versions.c.id).scalar_subquery()))
)


async def read_version_facts(transaction: Transaction, version_ids: Sequence[str]) -> Sequence[Any]:
    """Number, time limit and parameters of the version; name, namespace and kind of its workflow."""
    parameters = {"wanted_versions": encode_rows([(version_id,) for version_id in version_ids])}
    return await transaction.rows(_VERSION_FACTS, parameters)


_names = batch("wanted_names", namespace=String(200), name=String(200))
# Held against deletion, like those below.
_NAMED = (
    select(*_COLUMNS)
    .join(_names, (_names.c.namespace == _w.namespace) & (_names.c.name == _w.name))
    .where(_w.kind == constant("workflow"))
    .with_for_update(of=workflows, read=True, key_share=True)
)


async def find_named(transaction: Transaction, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], WorkflowRow]:
    """Workflows by (namespace, name), held against deletion; those that do not exist are left out."""
    rows = await transaction.rows(_NAMED, {"wanted_names": encode_rows(sorted(wanted))})
    return {(row.namespace, row.name): WorkflowRow(*row) for row in rows}


_wanted_workflows = batch("wanted_workflows", id=Id())
# Held against deletion, as the runs that refer to them will hold them anyway.
_MANY = (
    select(*_COLUMNS)
    .where(within(_w.id, select(_wanted_workflows.c.id).scalar_subquery()))
    .with_for_update(of=workflows, read=True, key_share=True)
)


async def read_workflows(transaction: Transaction, workflow_ids: Sequence[str]) -> dict[str, WorkflowRow]:
    parameters = {"wanted_workflows": encode_rows([(item,) for item in set(workflow_ids) if is_uuid(item)])}
    return {row.id: WorkflowRow(*row) for row in await transaction.rows(_MANY, parameters)}
