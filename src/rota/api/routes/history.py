"""The record of every change of state."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from rota.api.answers import answer
from rota.api.context import Api, Context, Namespace
from rota.api.lookup import read_id
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import Page
from rota.api.schemas.runs import Change, HistoryQuestions
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput
from rota.store.reads import runs
from rota.store.reads.runs import HistoryFilter

router = APIRouter(tags=["history"], route_class=LimitedRoute)
MAX_SEQ = 2**62
SinceQuery = Annotated[int, Query(ge=0, le=MAX_SEQ, description="The last `seq` that is known already.")]


@router.get("/history", response_model=Page[Change])
@needs(Permission.VIEW)
async def list_history(
    api: Context,
    namespace: Namespace,
    asked: Annotated[HistoryQuestions, Query()],
) -> Response:
    """Changes of state, the oldest first: of everything, or of one thing."""
    since = _read_cursor(asked.cursor) if asked.cursor else asked.since_seq
    wanted = HistoryFilter(namespace, entity_type=asked.entity_type, since_seq=since, limit=asked.limit)
    if asked.entity_id is not None:
        found = read_id(asked.entity_id, asked.entity_type or "entity")
        root = await api.database.read(lambda tx: runs.find_history_root(tx, found))
        wanted = replace(wanted, root_id=root, entity_id=found)
    return await answer_history(api, wanted)


def _read_cursor(cursor: str) -> int:
    if not cursor.isdigit() or int(cursor) > MAX_SEQ:
        raise InvalidInput.of([FieldError("cursor", "is not one that a list has answered: send it as it was given")])
    return int(cursor)


async def answer_history(api: Api, wanted: HistoryFilter) -> Response:
    """A page of changes; the cursor is the last one's `seq`."""
    rows = await api.database.read(lambda tx: runs.read_history(tx, replace(wanted, limit=wanted.limit + 1)))
    is_more = len(rows) > wanted.limit
    items = [Change.model_validate(row) for row in rows[: wanted.limit]]
    return answer(Page[Change](items=items, total=None, next_cursor=str(items[-1].seq) if is_more else None))
