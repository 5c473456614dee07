"""Who is signed in, and tickets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, SecretStr

from rota.api.schemas.base import Body, Shape
from rota.domain.access import Role


class SignIn(Body):
    """What a browser shows once, to get a cookie for it."""

    key: Annotated[SecretStr, Field(min_length=1, max_length=16_384, description="A key, or a token of the issuer.")]


class SessionInfo(Shape):
    """Who is asking."""

    name: str
    role: Role
    namespaces: list[str]
    kind: str = Field(description="`local`, `token`, `key` or `jwt`.")
    csrf_token: str | None = Field(
        description="Send it as `X-CSRF-Token` with everything but GET; null where there is no cookie."
    )


class Ticket(Shape):
    """Opens one WebSocket, as `?ticket=`."""

    ticket: str
    expires_at: datetime
