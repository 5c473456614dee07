"""How the service itself is."""

from __future__ import annotations

from pydantic import Field

from rota.api.schemas.base import Shape


class Liveness(Shape):
    status: str
    service: str


class MemoryUse(Shape):
    """What this process keeps, against what it may have."""

    used_bytes: int
    limit_bytes: int
    utilization_percent: float


class JobUse(Shape):
    """What waits to be done, against what may; a limit of 0 is none."""

    used: int
    limit: int
    utilization_percent: float


class Failures(Shape):
    """How the tasks of the last minutes ended that this node has seen the end of."""

    window_seconds: float
    finished: int
    failed: int
    rate: float
    threshold: float


class Health(Shape):
    status: str
    reasons: list[str] = Field(description="Why it is not healthy.")
    version: str
    service: str
    node: str | None
    role: str = Field(description="leader or follower; only housekeeping needs a leader")
    term: int | None
    database: bool
    memory: MemoryUse
    jobs: JobUse
    failures: Failures
