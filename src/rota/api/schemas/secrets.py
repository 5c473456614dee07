"""Secrets, whose values are never shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, SecretStr

from rota.api.schemas.base import Body, Shape
from rota.engine.secrets import LONGEST_VALUE


class SecretBody(Body):
    """What is to be kept."""

    value: Annotated[SecretStr, Field(min_length=1, max_length=LONGEST_VALUE)]


class Secret(Shape):
    """A secret, without what it is."""

    namespace: str
    name: str
    key_id: str = Field(description="The key that it is encrypted with.")
    created_at: datetime
    updated_at: datetime


class Secrets(Shape):
    items: list[Secret]
    total: int


class Rotated(Shape):
    """What encrypting anew did."""

    rotated: int
    unreadable: list[str] = Field(description="Those that no key of this server opens, as `namespace/name`.")
