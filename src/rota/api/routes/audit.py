"""The audit log."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from rota.api.access import require_namespace
from rota.api.answers import answer
from rota.api.context import Caller, Context
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.audit import AuditEntry, AuditQuestions
from rota.api.schemas.base import Page
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput
from rota.store import audit
from rota.store.audit import AuditFilter

router = APIRouter(tags=["access"], route_class=LimitedRoute)


@router.get("/audit", response_model=Page[AuditEntry])
@needs(Permission.ADMINISTER)
async def list_audit_log(api: Context, caller: Caller, asked: Annotated[AuditQuestions, Query()]) -> Response:
    """Who changed what, from where; the newest first."""
    if asked.namespace is not None:
        require_namespace(asked.namespace)
    elif not caller.is_everywhere:
        reason = f"is required with this key: one of {', '.join(caller.namespaces)}"
        raise InvalidInput.of([FieldError("namespace", reason)])
    wanted = AuditFilter(asked.namespace, asked.actor, asked.action, asked.entity_id, asked.cursor, asked.limit)
    rows = await api.database.read(lambda tx: audit.list_entries(tx, replace(wanted, limit=wanted.limit + 1)))
    items = [AuditEntry.model_validate(row) for row in rows[: wanted.limit]]
    is_more = len(rows) > wanted.limit
    return answer(Page[AuditEntry](items=items, total=None, next_cursor=str(items[-1].seq) if is_more else None))
