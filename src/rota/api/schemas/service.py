"""How the service itself is."""

from __future__ import annotations

from rota.api.schemas.base import Shape


class Liveness(Shape):
    status: str
    service: str


class Health(Shape):
    status: str
    version: str
    service: str
    role: str
    database: bool
