"""The audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.api.schemas.base import Questions, Shape

MOST_SEQ = 2**62
Word = Annotated[str | None, Field(max_length=200)]


class AuditEntry(Shape):
    """Something that somebody changed."""

    seq: int
    namespace: str = Field(description="Empty: it concerns all.")
    actor: str
    actor_kind: str = Field(description="How the actor is known: `local`, `token`, `key`, `jwt` or `folder`.")
    address: str
    action: str = Field(description="The operation, as in this document.")
    entity_type: str
    entity_id: str
    created_at: datetime


class AuditQuestions(Questions):
    """Which entries are wanted."""

    namespace: Annotated[str | None, Field(max_length=63, description="Left out: all that the key may see.")] = None
    actor: Word = None
    action: Word = None
    entity_id: Word = None
    limit: Annotated[int, Field(ge=1, le=500)] = 20
    cursor: Annotated[int | None, Field(ge=1, le=MOST_SEQ, description="`next_cursor` of the page before.")] = None
