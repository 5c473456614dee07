"""This node as a member of the cluster: it is heard of, and leads while it holds the leader's lease.

Only housekeeping needs a leader: every node may fire, claim and complete. The lease and its term live in the database,
on the database's time; what this process remembers of it runs out earlier, by its own monotonic clock.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from rota import __version__
from rota.domain.errors import NOT_LEADER, Conflict, RotaError
from rota.domain.ids import make_uuid7
from rota.observability.metrics import Metrics
from rota.store import leases, nodes
from rota.store.database import Database, Transaction
from rota.store.leases import LEADER, Lease
from rota.store.nodes import NodeFacts
from rota.store.wakeups import Topic

log = structlog.get_logger(__name__)

# Good-bye is said quickly or not at all: the lease runs out by itself.
RESIGN_SECONDS = 2.0
FORGET_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Who this node is, and how often it is heard of."""

    name: str
    url: str = ""
    roles: tuple[str, ...] = ()
    heartbeat_seconds: float = 2.0
    # Two heartbeats may get lost before somebody else leads.
    lease_seconds: float = 6.0

    @property
    def can_lead(self) -> bool:
        return "scheduler" in self.roles


class Member:
    """Runs until `stop`, which gives the leadership up at once."""

    def __init__(
        self,
        database: Database,
        options: MemberOptions,
        *,
        measure: Callable[[], Mapping[str, Any]] = dict,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options
        # Another one after every start: what a dead process held is not ours.
        self.node_id = make_uuid7(time.time_ns() // 1_000_000, os.urandom(10))
        self._database = database
        self._measure = measure
        self._metrics = metrics or Metrics()
        self._stopping = asyncio.Event()
        self._term: int | None = None
        self._leads_until = 0.0
        self._seen: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def is_leader(self) -> bool:
        """Whether this node holds the lease: surely not, if it has not been renewed in time."""
        return self._term is not None and time.monotonic() < self._leads_until

    @property
    def term(self) -> int | None:
        """The term in which this node leads."""
        return self._term if self.is_leader else None

    @property
    def role(self) -> str:
        return "leader" if self.is_leader else "follower"

    async def check_term(self, transaction: Transaction) -> None:
        """Raises Conflict unless this node leads; if it does, nobody else will before the transaction has ended."""
        term = self._term
        if term is None or not await leases.hold_term(transaction, LEADER, self.node_id, term):
            raise Conflict("this node does not lead (any more)", code=NOT_LEADER)

    async def run(self) -> None:
        """Is heard of, and leads if nobody else does, until `stop`."""
        try:
            while not self._stopping.is_set():
                seen = self._database.wakeups.count(Topic.CLUSTER)
                await self._guard()
                await self._pause(seen)
        finally:
            await self._resign()

    def stop(self) -> None:
        self._stopping.set()
        self._database.wakeups.call_locally([Topic.CLUSTER])

    async def run_once(self) -> None:
        """One heartbeat, and one look at the lease."""
        asked_at = time.monotonic()
        lease = await self._database.transact(self._beat)
        leads = lease is not None and lease.is_live and lease.holder == self.node_id
        self._term = lease.term if leads and lease else None
        self._leads_until = asked_at + self.options.lease_seconds if leads else 0.0
        self._metrics.set_leader(is_leader=self.is_leader)
        self._note(lease)

    async def _beat(self, transaction: Transaction) -> Lease | None:
        report = self._measure()
        if not await nodes.beat(transaction, self.node_id, report):
            await nodes.insert_node(transaction, self._describe(report))
        if not self.options.can_lead:
            return await leases.read_lease(transaction, LEADER)
        held, seconds = self._term, self.options.lease_seconds
        if held is None or not await leases.renew_lease(transaction, LEADER, self.node_id, held, seconds):
            lease = await leases.read_lease(transaction, LEADER)
            if (lease is None or not lease.is_live) and await leases.acquire_lease(
                transaction, LEADER, self.node_id, seconds
            ):
                await nodes.forget_silent(transaction, FORGET_SECONDS)
        return await leases.read_lease(transaction, LEADER)

    def _describe(self, report: Mapping[str, Any]) -> NodeFacts:
        return NodeFacts(self.node_id, self.options.name, self.options.url, self.options.roles, __version__, report)

    def _note(self, lease: Lease | None) -> None:
        current = None if lease is None or not lease.is_live else (lease.holder, lease.term)
        if current is not None and current != self._seen:
            self._seen = current
            self._metrics.count_leader_change()
            log.info("leader_changed", leader=lease and lease.holder_name, term=current[1])

    async def _guard(self) -> None:
        try:
            await self.run_once()
        except RotaError as error:
            log.warning("heartbeat_missed", reason=error.detail)
        except Exception:
            log.exception("heartbeat_failed")

    async def _pause(self, seen: int) -> None:
        """Until the next heartbeat, or until somebody gives up the lease."""
        if not self._stopping.is_set():
            await self._database.wakeups.wait(Topic.CLUSTER, seen, self.options.heartbeat_seconds)

    async def _resign(self) -> None:
        term, self._term = self._term, None
        self._metrics.set_leader(is_leader=False)

        async def say_goodbye(transaction: Transaction) -> None:
            if term is not None:
                await leases.release_lease(transaction, LEADER, self.node_id, term)
            await nodes.leave(transaction, self.node_id)

        try:
            async with asyncio.timeout(RESIGN_SECONDS):
                await self._database.transact(say_goodbye)
        except (RotaError, TimeoutError) as error:
            log.warning("goodbye_unheard", reason=str(error))
        except Exception:
            log.exception("goodbye_failed")
