"""What can be set on the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry

from rota.domain.access import Principal
from rota.observability.outcomes import Outcomes


class Issuer(Protocol):
    """Somebody else who says who callers are."""

    async def find(self, token: str) -> Principal | None:
        """Whose token this is, if it is one and good. Raises Forbidden for one that is good and allows nothing."""
        ...


class NodeView(Protocol):
    """The node whose API this is, as a member of its cluster."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def term(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Who is let in."""

    # Only this machine can reach the server: without any key, whoever does is let in.
    is_open: bool = True
    # A key that is known from the start, with every right.
    token: str = field(default="", repr=False)
    # What was found out about a key is taken to be true for so long: a revoked key is of no use after that.
    remember_seconds: float = 5.0
    # Requests a second of one key, and of one address; 0: no limit. Workers are not limited.
    rate_limit: float = 0.0
    # Who vouches for tokens that are none of our keys.
    issuer: Issuer | None = None


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Bounds of requests, and what the service endpoints show."""

    service: str = "api"
    max_body_bytes: int = 5_000_000
    # Workers send logs and outputs of many attempts at once.
    max_events_bytes: int = 32_000_000
    # The longest that a long poll is held.
    max_wait_seconds: float = 60.0
    # A follower of events that reads nothing for so long, while there is something for it, is dropped.
    stall_seconds: float = 10.0
    # How often the key of such a follower is looked at again.
    check_seconds: float = 10.0
    # What `/metrics` shows; nothing is shown without one.
    registry: CollectorRegistry | None = None
    access: AccessOptions = field(default_factory=AccessOptions)
    node: NodeView | None = None
    outcomes: Outcomes = field(default_factory=Outcomes)
    # The share of failed tasks above which the service is not healthy.
    failure_threshold: float = 1.0
