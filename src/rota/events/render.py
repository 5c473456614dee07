"""Changes as events: with the names that a page shows beside the ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rota.domain.events import Event, EventType
from rota.engine.core import Memory
from rota.store import outbox
from rota.store.database import Database, Transaction

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
REMEMBERED = 20_000


class Renderer:
    """Makes events of changes. What never changes is looked up once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._workflows_of: Memory[str, str] = Memory(REMEMBERED)
        self._workflow_names: Memory[str, str] = Memory(REMEMBERED)
        self._tasks_of: Memory[str, tuple[str, int]] = Memory(REMEMBERED)
        self._task_names: Memory[str, str] = Memory(REMEMBERED)
        self._worker_names: Memory[str, tuple[str, str]] = Memory(REMEMBERED)

    async def render(self, rows: Sequence[Any]) -> list[Event]:
        """The events that these changes are; some are none."""
        known = [row for row in rows if row.entity_type in _MAKERS]
        if not known:
            return []
        names = await self._database.read(lambda tx: self._look_up(tx, known))
        return [_MAKERS[row.entity_type](row, names) for row in known]

    async def _look_up(self, transaction: Transaction, rows: Sequence[Any]) -> _Names:
        task_run_ids = [row.entity_id for row in rows if row.entity_type == "task_run"]
        run_ids = [row.root_id for row in rows if row.entity_type != "worker"]
        worker_ids = [row.entity_id for row in rows if row.entity_type == "worker"]
        workflows_of = await _find(transaction, self._workflows_of, run_ids, outbox.read_workflows_of)
        tasks_of = await _find(transaction, self._tasks_of, task_run_ids, outbox.read_tasks_of)
        task_ids = [task_id for task_id, _index in tasks_of.values()]
        return _Names(
            workflows_of,
            await _find(transaction, self._workflow_names, list(workflows_of.values()), outbox.read_workflow_names),
            tasks_of,
            await _find(transaction, self._task_names, task_ids, outbox.read_task_names),
            await _find(transaction, self._worker_names, worker_ids, outbox.read_worker_names),
        )


async def _find(
    transaction: Transaction,
    memory: Memory[str, T],
    ids: Sequence[str],
    read: Callable[[Transaction, Sequence[str]], Awaitable[Mapping[str, T]]],
) -> dict[str, T]:
    """The values of these ids, from the database only if they are not known yet."""
    found = {one: value for one in set(ids) if (value := memory.get(one)) is not None}
    missing = [one for one in set(ids) if one not in found]
    for one, value in (await read(transaction, missing)).items() if missing else ():
        memory.put(one, value)
        found[one] = value
    return found


class _Names:
    """What ids are called."""

    def __init__(
        self,
        workflows_of: Mapping[str, str],
        workflows: Mapping[str, str],
        tasks_of: Mapping[str, tuple[str, int]],
        tasks: Mapping[str, str],
        workers: Mapping[str, tuple[str, str]],
    ) -> None:
        self._workflows_of = workflows_of
        self._workflows = workflows
        self._tasks_of = tasks_of
        self._tasks = tasks
        self._workers = workers

    def describe_run(self, run_id: str) -> dict[str, Any]:
        workflow_id = self._workflows_of.get(run_id)
        return {
            "workflow_run_id": run_id,
            "workflow_id": workflow_id,
            "workflow": self._workflows.get(workflow_id or ""),
        }

    def describe_task(self, task_run_id: str) -> dict[str, Any]:
        task_id, index = self._tasks_of.get(task_run_id, (None, -1))
        return {
            "task_run_id": task_run_id,
            "task_id": task_id,
            "task": self._tasks.get(task_id or ""),
            "map_index": index if index >= 0 else None,
        }

    def describe_worker(self, worker_id: str) -> dict[str, Any]:
        name, hostname = self._workers.get(worker_id, (None, None))
        return {"worker_id": worker_id, "name": name, "hostname": hostname}


def _describe_change(row: Any) -> dict[str, Any]:
    return {
        "id": row.entity_id,
        "namespace": row.namespace,
        "status": row.new_state,
        "old_status": row.old_state,
        "at": row.changed_at,
        "details": row.metadata or {},
    }


def _make_workflow_event(row: Any, names: _Names) -> Event:
    run = names.describe_run(row.root_id)
    payload = {**_describe_change(row), **run}
    return _make(row.seq, EventType.WORKFLOW, row.namespace, payload, run["workflow_id"], row.root_id)


def _make_task_event(row: Any, names: _Names) -> Event:
    run = names.describe_run(row.root_id)
    payload = {**_describe_change(row), **run, **names.describe_task(row.entity_id)}
    return _make(row.seq, EventType.TASK, row.namespace, payload, run["workflow_id"], row.root_id)


def _make_worker_event(row: Any, names: _Names) -> Event:
    payload = {**_describe_change(row), **names.describe_worker(row.entity_id), "last_heartbeat": row.changed_at}
    return _make(row.seq, EventType.WORKER, row.namespace, payload)


_MAKERS: Mapping[str, Callable[[Any, _Names], Event]] = {
    "workflow_run": _make_workflow_event,
    "task_run": _make_task_event,
    "worker": _make_worker_event,
}


def make_heartbeat(row: Any, seq: int) -> Event:
    """A worker was heard of, which changes nothing: such events have the number of the change before them."""
    payload = {
        "id": row.id,
        "namespace": "",
        "status": row.status,
        "old_status": row.status,
        "at": row.last_heartbeat,
        "details": {},
        "worker_id": row.id,
        "name": row.name,
        "hostname": row.hostname,
        "last_heartbeat": row.last_heartbeat,
    }
    return _make(seq, EventType.WORKER, "", payload)


def _make(
    seq: int,
    kind: EventType,
    namespace: str,
    payload: Mapping[str, Any],
    workflow_id: str | None = None,
    run_id: str | None = None,
) -> Event:
    document = _encode({"type": kind, "seq": seq, "payload": payload})
    return Event(seq, kind, namespace, workflow_id, run_id, document)
