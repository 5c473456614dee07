"""Open approvals, as people read them."""

from __future__ import annotations

from sqlalchemy import select

from rota.store.database import Transaction
from rota.store.dialect import constant
from rota.store.reads.pages import Listing, PageRequest, read_page
from rota.store.tables import task_runs, tasks, workflows

_t = task_runs.c
_OPEN = (
    select(
        _t.id,
        _t.run_id,
        _t.workflow_id,
        workflows.c.name.label("workflow"),
        tasks.c.name.label("task"),
        _t.map_index,
        _t.started_at,
        _t.due_at,
        _t.waiting_for,
    )
    .join(tasks, tasks.c.id == _t.task_id)
    .join(workflows, workflows.c.id == _t.workflow_id)
    .where(_t.holder == constant("approval"))
)


async def list_approvals(
    transaction: Transaction, namespace: str, page: PageRequest, workflow_id: str | None = None
) -> Listing:
    """Task runs that somebody has to decide about, the newest first."""
    statement = _OPEN.where(_t.namespace == namespace)
    if workflow_id is not None:
        statement = statement.where(_t.workflow_id == workflow_id)
    return await read_page(transaction, statement, _t.id, page)
