"""Statements that read the history as an outbox: by its numbers, with what a reader of events wants to know."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Integer, bindparam, func, select

from rota.store.database import Transaction
from rota.store.dialect import Id, Instant, batch, within
from rota.store.encoding import encode_rows
from rota.store.tables import state_history, task_runs, tasks, workflow_runs, workflows
from rota.store.tables_service import workers
from rota.store.writers import new_writer, oldest_writer

_h = state_history.c
_CHANGES = (
    select(
        _h.seq,
        _h.entity_type,
        _h.entity_id,
        _h.root_id,
        _h.namespace,
        _h.old_state,
        _h.new_state,
        _h.changed_at,
        _h.metadata,
    )
    .where(
        _h.seq > bindparam("after_seq", type_=BigInteger()),
        _h.seq <= bindparam("up_to_seq", type_=BigInteger()),
    )
    .order_by(_h.seq)
    .limit(bindparam("at_most", type_=Integer()))
)
NO_END = 2**62


async def read_changes(transaction: Transaction, after: int, limit: int, *, up_to: int = NO_END) -> Sequence[Any]:
    """Changes with numbers after `after`, in their order; what is still being written is not among them."""
    return await transaction.rows(_CHANGES, {"after_seq": after, "up_to_seq": up_to, "at_most": limit})


_LAST = select(func.max(_h.seq))
_NEW_WRITER = select(new_writer())
_OLDEST_WRITER = select(oldest_writer())


async def read_last_seq(transaction: Transaction) -> int:
    """The greatest number of a change that can be read."""
    row = await transaction.row(_LAST)
    return 0 if row is None or row[0] is None else int(row[0])


async def find_new_writer(transaction: Transaction) -> int:
    """A number greater than that of every transaction which has begun to write."""
    row = await transaction.row(_NEW_WRITER)
    return 0 if row is None else int(row[0])


async def find_oldest_writer(transaction: Transaction) -> int:
    """The number below which every transaction has ended."""
    row = await transaction.row(_OLDEST_WRITER)
    return 0 if row is None else int(row[0])


# Each by its own key, and not joined: a plan for a join can be wrong about the size of a table, an array of keys not.
_wanted = select(batch("wanted", id=Id()).c.id).scalar_subquery()
_WORKFLOWS_OF = select(workflow_runs.c.id, workflow_runs.c.workflow_id).where(within(workflow_runs.c.id, _wanted))
_WORKFLOW_NAMES = select(workflows.c.id, workflows.c.name).where(within(workflows.c.id, _wanted))
_TASKS_OF = select(task_runs.c.id, task_runs.c.task_id, task_runs.c.map_index).where(within(task_runs.c.id, _wanted))
_TASK_NAMES = select(tasks.c.id, tasks.c.name).where(within(tasks.c.id, _wanted))


async def read_workflows_of(transaction: Transaction, run_ids: Sequence[str]) -> dict[str, str]:
    """The workflows of runs, by id."""
    return {row.id: row.workflow_id for row in await transaction.rows(_WORKFLOWS_OF, _name(run_ids))}


async def read_workflow_names(transaction: Transaction, workflow_ids: Sequence[str]) -> dict[str, str]:
    return {row.id: row.name for row in await transaction.rows(_WORKFLOW_NAMES, _name(workflow_ids))}


async def read_tasks_of(transaction: Transaction, task_run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The task of each task run, and which of the task's items it is."""
    return {row.id: (row.task_id, row.map_index) for row in await transaction.rows(_TASKS_OF, _name(task_run_ids))}


async def read_task_names(transaction: Transaction, task_ids: Sequence[str]) -> dict[str, str]:
    return {row.id: row.name for row in await transaction.rows(_TASK_NAMES, _name(task_ids))}


def _name(ids: Sequence[str]) -> dict[str, str]:
    return {"wanted": encode_rows([(one,) for one in ids])}


_w = workers.c
_WORKERS = (
    select(_w.id, _w.name, _w.hostname, _w.status, _w.last_heartbeat)
    .where(_w.last_heartbeat > bindparam("heard_after", type_=Instant()))
    .order_by(_w.last_heartbeat)
    .limit(bindparam("at_most", type_=Integer()))
)
_WORKER_NAMES = select(_w.id, _w.name, _w.hostname).where(within(_w.id, _wanted))


async def read_heartbeats(transaction: Transaction, after: datetime, limit: int) -> Sequence[Any]:
    """Workers that have been heard of since then."""
    return await transaction.rows(_WORKERS, {"heard_after": after, "at_most": limit})


async def read_worker_names(transaction: Transaction, worker_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Label and host of each worker."""
    return {row.id: (row.name, row.hostname) for row in await transaction.rows(_WORKER_NAMES, _name(worker_ids))}
