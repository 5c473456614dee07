"""Approvals: what waits for somebody's decision, and the decision."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota.api.answers import PageQuery, answer, answer_page
from rota.api.context import Api, Caller, Context, Namespace
from rota.api.lookup import require_task_run, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.approvals import Approval, Decided, DecisionBody
from rota.api.schemas.base import Page
from rota.domain.access import Permission, Principal
from rota.engine.approve import may_decide
from rota.store.reads import approvals

router = APIRouter(tags=["approvals"], route_class=LimitedRoute)


@router.get("/approvals", response_model=Page[Approval])
@needs(Permission.VIEW)
async def list_approvals(
    api: Context,
    namespace: Namespace,
    page: PageQuery,
    caller: Caller,
    workflow: Annotated[str | None, Query(max_length=200, description="Its id or name.")] = None,
) -> Response:
    """Lists what waits for somebody's decision."""
    workflow_id = None if workflow is None else (await require_workflow(api, namespace, workflow)).id
    listing = await api.database.read(lambda tx: approvals.list_approvals(tx, namespace, page, workflow_id))
    return answer_page(Page[Approval], listing, lambda row: _make_approval(row, caller))


def _make_approval(row: Any, caller: Principal) -> Approval:
    is_allowed = caller.may(Permission.OPERATE) and may_decide(row.waiting_for, caller.name)
    return Approval(**row._asdict(), **row.waiting_for, may_decide=is_allowed)


@router.post("/task-runs/{task_run_id}/approve", response_model=Decided)
@needs(Permission.OPERATE)
async def approve(
    api: Context, namespace: Namespace, caller: Caller, task_run_id: str, body: DecisionBody | None = None
) -> Response:
    """Approves: the task succeeds. For those whom it names as approvers, or everybody if it names none."""
    return await _decide(api, namespace, task_run_id, caller, body, is_approved=True)


@router.post("/task-runs/{task_run_id}/reject", response_model=Decided)
@needs(Permission.OPERATE)
async def reject(
    api: Context, namespace: Namespace, caller: Caller, task_run_id: str, body: DecisionBody | None = None
) -> Response:
    """Rejects: the task fails. For those whom it names as approvers, or everybody if it names none."""
    return await _decide(api, namespace, task_run_id, caller, body, is_approved=False)


async def _decide(
    api: Api, namespace: str, task_run_id: str, caller: Principal, body: DecisionBody | None, *, is_approved: bool
) -> Response:
    row = await require_task_run(api, namespace, task_run_id)
    reason = body.reason if body else ""
    decision = await api.engine.decide_approval(row.id, is_approved=is_approved, by=caller.name, reason=reason)
    after = await require_task_run(api, namespace, row.id)
    return answer(
        Decided(
            id=row.id,
            status=after.status,
            decision=decision.decision,
            by=caller.name,
            reason=decision.reason,
            at=decision.at,
        )
    )
