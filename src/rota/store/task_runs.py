"""Statements that create task runs and queue the first ones of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, case, insert, literal, null, or_, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, among, batch, constant, milliseconds_of, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs, tasks, workflow_runs

# One point of priority is worth this much waiting: urgent work goes first, and nothing waits for ever.
MILLISECONDS_PER_PRIORITY = 60_000

_t = task_runs.c
RANK = milliseconds_of(NOW) - _t.priority * MILLISECONDS_PER_PRIORITY

_created = batch("created", id=Id(), run_id=Id(), task_id=Id())
_is_ready = and_(
    or_(tasks.c.upstream_count == 0, tasks.c.trigger_rule == constant("always")),
    workflow_runs.c.status == constant("running"),
)
_CREATE = insert(task_runs).from_select(
    [
        "id",
        "run_id",
        "namespace",
        "workflow_id",
        "task_id",
        "status",
        "trigger_rule",
        "upstream_waiting",
        "downstream_count",
        "is_teardown",
        "is_gated",
        "is_branch",
        "lane_id",
        "priority",
        "is_limited",
        "retry_count",
        "max_deliveries",
        "timeout_seconds",
        "claim_rank",
        "queued_at",
        "created_at",
        "logical_date",
    ],
    select(
        _created.c.id,
        _created.c.run_id,
        workflow_runs.c.namespace,
        workflow_runs.c.workflow_id,
        _created.c.task_id,
        case((_is_ready, literal("queued")), else_=literal("pending")),
        tasks.c.trigger_rule,
        tasks.c.upstream_count,
        tasks.c.downstream_count,
        tasks.c.is_teardown,
        tasks.c.is_gated,
        tasks.c.is_branch,
        tasks.c.lane_id,
        tasks.c.priority,
        tasks.c.is_limited,
        tasks.c.retry_count,
        tasks.c.max_deliveries,
        tasks.c.timeout_seconds,
        case((_is_ready, milliseconds_of(NOW) - tasks.c.priority * MILLISECONDS_PER_PRIORITY), else_=null()),
        case((_is_ready, NOW), else_=null()),
        NOW,
        workflow_runs.c.logical_date,
    )
    .select_from(
        _created.join(tasks, tasks.c.id == _created.c.task_id).join(
            workflow_runs, workflow_runs.c.id == _created.c.run_id
        )
    )
    .where(
        among(tasks.c.id, select(_created.c.task_id).scalar_subquery()),
        among(workflow_runs.c.id, select(_created.c.run_id).scalar_subquery()),
    ),
)


async def create_task_runs(transaction: Transaction, rows: Sequence[tuple[str, str, str]]) -> None:
    """Creates task runs from (id, run id, task id); the first ones of a running run are queued at once."""
    await transaction.run(_CREATE, {"created": encode_rows(rows)})


_started = batch("started", id=Id())
_START = (
    update(task_runs)
    .values(status="queued", claim_rank=RANK, queued_at=NOW)
    .where(
        within(_t.run_id, select(_started.c.id).scalar_subquery()),
        _t.status == constant("pending"),
        or_(_t.upstream_waiting == 0, _t.trigger_rule == constant("always")),
    )
    .returning(_t.id, _t.run_id, _t.namespace, _t.is_gated)
)


async def queue_first_tasks(transaction: Transaction, run_ids: Sequence[str]) -> Sequence[Any]:
    """Queues the task runs without upstreams of runs that just started."""
    return await transaction.rows(_START, {"started": encode_rows([(run_id,) for run_id in run_ids])})
