"""API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from rota.api.schemas.base import Body, Shape
from rota.domain.access import EVERY_NAMESPACE, Role

LONGEST_LIFE_SECONDS = 100 * 366 * 86_400


class ApiKeyBody(Body):
    """A key that is wanted."""

    name: Annotated[str, Field(min_length=1, max_length=200, description="What the audit log calls its bearer.")]
    role: Annotated[Role, Field(strict=False, description="What it may do.")] = Role.VIEWER
    namespaces: Annotated[
        list[Annotated[str, Field(max_length=63)]],
        Field(min_length=1, max_length=100, description="Where it may do it; `*` alone: everywhere."),
    ] = Field(default_factory=lambda: [EVERY_NAMESPACE])
    expires_in_seconds: Annotated[
        float | None, Field(gt=0, le=LONGEST_LIFE_SECONDS, description="null: it does not expire.")
    ] = None


class ApiKey(Shape):
    """A key, without what it takes to use it."""

    id: str
    name: str
    prefix: str = Field(description="Its first characters.")
    role: Role
    namespaces: list[str]
    status: Literal["active", "expired", "revoked"]
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")


class CreatedApiKey(ApiKey):
    """A new key."""

    key: str = Field(description="The key itself, which is shown only now.")
