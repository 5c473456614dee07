"""The cluster and its nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from rota.api.schemas.base import Body, Shape


class Node(Shape):
    """A server process; one that stopped without a word is `lost`."""

    id: str
    name: str
    address: str
    roles: list[str]
    status: str = Field(description="active, joining, left or lost")
    is_leader: bool
    version: str
    started_at: datetime
    last_heartbeat: datetime
    lag_seconds: float = Field(description="How long ago it was heard of, on the database's time.")
    report: dict[str, Any] = Field(description="What it measures of itself.")


class Leader(Shape):
    """The node that keeps house; every node fires, claims and completes."""

    id: str
    name: str
    term: int
    since: datetime
    expires_at: datetime


class Replica(Shape):
    """A copy of the PostgreSQL server, as that tells of it."""

    name: str
    state: str | None
    sync_state: str | None
    lag_seconds: float | None


class Cluster(Shape):
    node: str | None = Field(description="The node that answers.")
    role: str
    term: int
    leader: Leader | None
    nodes: list[Node]
    database_replicas: list[Replica]


class JoinBody(Body):
    node_id: str = Field(min_length=1, max_length=200, description="The node's id, or its name.")
    name: str | None = Field(default=None, max_length=200)
    address: str = Field(default="", max_length=2_000, description="Where its API is.")


class Joined(Shape):
    status: str = Field(description="joined, or joining until the node is heard of in this cluster's database")
    leader: str | None
    nodes: list[Node]
