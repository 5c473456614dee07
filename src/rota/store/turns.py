"""Statements on turns: how many runs of a workflow may be active, and which of those that wait come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Integer, and_, bindparam, func, not_, or_, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, batch, constant, flag, within
from rota.store.encoding import encode_rows
from rota.store.tables import workflow_runs, workflows

_r = workflow_runs.c

_limits = batch("limits", id=Id())
_LOCK_WORKFLOWS = (
    select(workflows.c.id, workflows.c.max_active_runs)
    .where(workflows.c.id.in_(select(_limits.c.id)))
    .order_by(workflows.c.id)
    .with_for_update(key_share=True)
)
_COUNT_ACTIVE = (
    select(_r.workflow_id, func.count())
    .where(
        within(_r.workflow_id, select(_limits.c.id).scalar_subquery()),
        _r.status == constant("running"),
        flag(_r.is_limited),
    )
    .group_by(_r.workflow_id)
)


async def lock_free_turns(transaction: Transaction, workflow_ids: Sequence[str]) -> dict[str, int]:
    """How many more runs may be active in each workflow that limits them; holds the workflows until the commit."""
    parameters = {"limits": encode_rows([(workflow_id,) for workflow_id in sorted(set(workflow_ids))])}
    limits = await transaction.rows(_LOCK_WORKFLOWS, parameters)
    active = {row[0]: row[1] for row in await transaction.rows(_COUNT_ACTIVE, parameters)}
    unlimited = 1_000_000
    return {
        row.id: max(0, row.max_active_runs - active.get(row.id, 0)) if row.max_active_runs else unlimited
        for row in limits
    }


_ahead = workflow_runs.alias("ahead")
# Another run of the same schedule that goes first: it runs, or it has waited for longer.
_is_behind = (
    select(_ahead.c.id)
    .where(
        _ahead.c.schedule_id == _r.schedule_id,
        _ahead.c.finished_at.is_(None),
        _ahead.c.id != _r.id,
        or_(
            _ahead.c.status == constant("running"),
            _ahead.c.created_at < _r.created_at,
            and_(_ahead.c.created_at == _r.created_at, _ahead.c.id < _r.id),
        ),
    )
    .exists()
)
_WAITING = (
    select(_r.id)
    .where(
        _r.workflow_id == bindparam("workflow", type_=Id()),
        _r.status == constant("pending"),
        or_(_r.is_serial.is_(False), not_(_is_behind)),
    )
    .order_by(_r.created_at, _r.id)
    .limit(bindparam("turns", type_=Integer()))
    # One that is locked is being cancelled, and whoever does so may be waiting for the workflow.
    .with_for_update(of=workflow_runs, skip_locked=True, key_share=True)
)
_turns = batch("turn_runs", id=Id())
_START = (
    update(workflow_runs)
    .values(
        status="running",
        started_at=NOW,
        deadline_at=add_seconds(NOW, _r.timeout_seconds),
    )
    .where(within(_r.id, select(_turns.c.id).scalar_subquery()), _r.status == constant("pending"))
    .returning(_r.id, _r.namespace, _r.workflow_id)
)


class StartedRun(NamedTuple):
    id: str
    namespace: str
    workflow_id: str


async def start_waiting_runs(transaction: Transaction, workflow_id: str, turns: int) -> list[StartedRun]:
    """Starts the first `turns` waiting runs of a workflow, in the order of their creation."""
    waiting = await transaction.rows(_WAITING, {"workflow": workflow_id, "turns": turns})
    if not waiting:
        return []
    parameters = {"turn_runs": encode_rows([(row.id,) for row in waiting])}
    return [StartedRun(*row) for row in await transaction.rows(_START, parameters)]


_WAITING_WORKFLOWS = (
    select(_r.workflow_id)
    .where(_r.status == constant("pending"))
    .distinct()
    .order_by(_r.workflow_id)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_waiting_workflows(transaction: Transaction, limit: int) -> list[str]:
    """Workflows with runs that wait for their turn, in the order in which they are locked."""
    return [row.workflow_id for row in await transaction.rows(_WAITING_WORKFLOWS, {"at_most": limit})]
