"""Reads behind the question "why is it not running?"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, String, bindparam, cast, func, select

from rota.store.database import Transaction
from rota.store.dialect import Id, batch, constant
from rota.store.encoding import encode_rows
from rota.store.tables import lanes, state_history, task_dependencies, task_runs, tasks, workflow_runs, workflows
from rota.store.tables_service import workers

_t = task_runs.c
_r = workflow_runs.c
_of = bindparam("of", type_=Id())

_TASK_RUN = (
    select(
        _t.id,
        _t.run_id,
        _t.status,
        _t.namespace,
        _t.lane_id,
        _t.concurrency_key,
        _t.key_state,
        _t.claim_rank,
        _t.trigger_rule,
        _t.task_id,
        _t.map_index,
        _t.attempt,
        _t.due_at,
        _t.queued_at,
        _t.started_at,
        _t.finished_at,
        _t.worker_id,
        _t.lease_expires_at,
        _t.holder,
        _t.waiting_for,
        _t.error_type,
        _t.error,
        _t.cancel_requested_at,
        tasks.c.name,
        _r.status.label("run_status"),
        _r.workflow_id,
    )
    .join(tasks, tasks.c.id == _t.task_id)
    .join(workflow_runs, _r.id == _t.run_id)
    .where(_t.id == _of)
)


async def read_task_run(transaction: Transaction, task_run_id: str) -> Any | None:
    return await transaction.row(_TASK_RUN, {"of": task_run_id})


_CALLED_RUN = (
    select(_r.id, workflows.c.name, _r.status, _r.started_at)
    .join(workflows, workflows.c.id == _r.workflow_id)
    .where(_r.parent_task_run_id == _of, _r.parent_attempt == bindparam("attempt", type_=Integer()))
)


async def read_called_run(transaction: Transaction, task_run_id: str, attempt: int) -> Any | None:
    """The run that this attempt has started."""
    return await transaction.row(_CALLED_RUN, {"of": task_run_id, "attempt": attempt})


_BLOCKERS = (
    select(_t.id, tasks.c.name, _t.status)
    .join(task_dependencies, task_dependencies.c.depends_on_task_id == _t.task_id)
    .join(tasks, tasks.c.id == _t.task_id)
    .where(
        _t.run_id == bindparam("run", type_=Id()),
        task_dependencies.c.task_id == bindparam("task", type_=Id()),
        _t.map_index == -1,
        _t.finished_at.is_(None),
    )
    .order_by(tasks.c.position)
    .limit(20)
)


async def read_blockers(transaction: Transaction, run_id: str, task_id: str) -> Sequence[Any]:
    """The upstream task runs that have not ended."""
    return await transaction.rows(_BLOCKERS, {"run": run_id, "task": task_id})


_WORKERS = select(workers.c.id, workers.c.name, workers.c.queues, workers.c.kinds, workers.c.labels).where(
    workers.c.status == constant("active")
)


async def read_active_workers(transaction: Transaction) -> Sequence[Any]:
    return await transaction.rows(_WORKERS)


_AHEAD = select(func.count()).where(
    _t.status == constant("queued"),
    _t.lane_id == bindparam("lane", type_=Integer()),
    _t.claim_rank < select(_t.claim_rank).where(_t.id == _of).scalar_subquery(),
)


async def count_ahead(transaction: Transaction, task_run_id: str, lane_id: int) -> int:
    """How many task runs of the lane go first."""
    row = await transaction.row(_AHEAD, {"of": task_run_id, "lane": lane_id})
    return row[0] if row else 0


_KEY_HOLDER = (
    select(_t.id, tasks.c.name, workflows.c.name.label("workflow"), _t.started_at, _t.status)
    .join(tasks, tasks.c.id == _t.task_id)
    .join(workflows, workflows.c.id == _t.workflow_id)
    .where(
        _t.key_state == constant("held"),
        _t.namespace == bindparam("namespace"),
        _t.concurrency_key == bindparam("concurrency_key"),
    )
)


async def read_key_holders(transaction: Transaction, namespace: str, key: str) -> Sequence[Any]:
    """The task run that holds a concurrency key; at most one."""
    return await transaction.rows(_KEY_HOLDER, {"namespace": namespace, "concurrency_key": key})


_lanes = batch("holding_lanes", lane_id=Integer())
_HOLDERS = (
    select(_t.id, tasks.c.name, workflows.c.name.label("workflow"), _t.started_at)
    .join(tasks, tasks.c.id == _t.task_id)
    .join(workflows, workflows.c.id == _t.workflow_id)
    .where(
        _t.status == constant("running"),
        _t.is_limited,
        _t.holder.is_(None),
        _t.lane_id.in_(select(_lanes.c.lane_id)),
    )
    .order_by(_t.started_at)
    .limit(20)
)
_LANES_OF_POOL = select(lanes.c.id).where(
    lanes.c.namespace == bindparam("namespace"), lanes.c.pool == bindparam("pool")
)
_LANES_OF_WORKFLOW = select(lanes.c.id).where(lanes.c.workflow_id == _of)


async def read_pool_holders(transaction: Transaction, namespace: str, pool: str) -> Sequence[Any]:
    """Who holds slots of a pool, the oldest first."""
    found = await transaction.rows(_LANES_OF_POOL, {"namespace": namespace, "pool": pool})
    return await transaction.rows(_HOLDERS, {"holding_lanes": encode_rows([(row.id,) for row in found])})


async def read_workflow_holders(transaction: Transaction, workflow_id: str) -> Sequence[Any]:
    """Who counts against a workflow's max_active_tasks, the oldest first."""
    found = await transaction.rows(_LANES_OF_WORKFLOW, {"of": workflow_id})
    return await transaction.rows(_HOLDERS, {"holding_lanes": encode_rows([(row.id,) for row in found])})


_RUN = (
    select(
        _r.id,
        _r.status,
        _r.workflow_id,
        _r.remaining,
        _r.cancel_requested_at,
        _r.finished_at,
        workflows.c.name,
        workflows.c.max_active_runs,
    )
    .join(workflows, workflows.c.id == _r.workflow_id)
    .where(_r.id == _of)
)
_ACTIVE_RUNS = (
    select(_r.id, _r.started_at)
    .where(_r.workflow_id == _of, _r.status == constant("running"), _r.is_limited)
    .order_by(_r.started_at)
    .limit(20)
)
_STATUS_COUNTS = (
    select(_t.status, func.count(), func.min(cast(_t.id, String))).where(_t.run_id == _of).group_by(_t.status)
)


async def read_run(transaction: Transaction, run_id: str) -> Any | None:
    return await transaction.row(_RUN, {"of": run_id})


async def read_active_runs(transaction: Transaction, workflow_id: str) -> Sequence[Any]:
    """The runs that count against the workflow's max_active_runs."""
    return await transaction.rows(_ACTIVE_RUNS, {"of": workflow_id})


async def read_status_counts(transaction: Transaction, run_id: str) -> dict[str, tuple[int, str]]:
    """For each status in a run: how many task runs, and the first of them."""
    return {row[0]: (row[1], row[2]) for row in await transaction.rows(_STATUS_COUNTS, {"of": run_id})}


_h = state_history.c
_LAST_DECISION = (
    select(_h.new_state, _h.changed_at, _h.metadata)
    .where(_h.root_id == _of, _h.entity_type == "schedule")
    .order_by(_h.seq.desc())
    .limit(1)
)
_LAST_TICK = (
    select(_r.id, _r.status, _r.logical_date).where(_r.schedule_id == _of).order_by(_r.logical_date.desc()).limit(1)
)


async def read_last_decision(transaction: Transaction, schedule_id: str) -> Any | None:
    return await transaction.row(_LAST_DECISION, {"of": schedule_id})


async def read_last_tick(transaction: Transaction, schedule_id: str) -> Any | None:
    return await transaction.row(_LAST_TICK, {"of": schedule_id})
