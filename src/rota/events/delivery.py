"""Delivering the events to somebody who keeps them: at least once, in order, by the node that leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from rota.domain.errors import NOT_LEADER, Conflict, Unavailable
from rota.domain.events import Event
from rota.events.outbox import Outbox, find_end
from rota.events.render import Renderer
from rota.observability.metrics import Metrics
from rota.outbound.backoff import Backoff
from rota.store import sinks
from rota.store.database import Database, Transaction
from rota.store.sinks import Sink
from rota.store.wakeups import Topic

log = structlog.get_logger(__name__)

# Where a change waits for one before it, nobody may say when that is there.
GAP_SECONDS = 0.05
POLL_SECONDS = 2.0


class SinkFailed(Exception):
    """The events were not taken; the message says why."""


class Target(Protocol):
    """Where events go."""

    @property
    def name(self) -> str:
        """Under which its place is kept: two words of the same target must not differ."""
        ...

    async def send(self, events: Sequence[Event]) -> None:
        """Hands over all of them. Raises SinkFailed; then all of them come again."""
        ...


class Leadership(Protocol):
    """Whether this node is the one that delivers."""

    @property
    def is_leader(self) -> bool: ...

    async def check_term(self, transaction: Transaction) -> None: ...


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """How patient a delivery is."""

    # Between two deliveries: what happens meanwhile goes together, and the place is noted once.
    pause_seconds: float = 0.05
    # A sink that has taken nothing for so long gets nothing more until somebody says so.
    give_up_seconds: float = 5 * 86_400.0
    # Instead of 1, 2, 4 … 30 seconds after failures in a row.
    retry_seconds: float | None = None


class Delivery:
    """Runs until it is cancelled. Holds one batch of events, however far behind its target is."""

    def __init__(
        self,
        database: Database,
        target: Target,
        leadership: Leadership,
        options: DeliveryOptions | None = None,
        *,
        metrics: Metrics | None = None,
    ) -> None:
        self.options = options or DeliveryOptions()
        self._database = database
        self._fenced = database.fenced(leadership.check_term)
        self._target = target
        self._leadership = leadership
        self._metrics = metrics or Metrics()
        self._renderer = Renderer(database)
        self._backoff = Backoff()

    async def run(self) -> None:
        """Delivers while this node leads."""
        while True:
            seen = self._database.wakeups.count(Topic.CLUSTER)
            try:
                if self._leadership.is_leader:
                    await self._deliver()
            except Conflict as error:
                if error.code != NOT_LEADER:
                    log.exception("delivery_failed", sink=self._target.name)
                log.info("leadership_lost", duty=f"deliver to {self._target.name}")
            except Unavailable as error:
                log.warning("delivery_put_off", sink=self._target.name, reason=error.detail)
            except Exception:
                log.exception("delivery_failed", sink=self._target.name)
            await self._database.wakeups.wait(Topic.CLUSTER, seen, POLL_SECONDS)

    async def _deliver(self) -> None:
        """From where it was, until this node leads no more or the target is given up."""
        place = await self._find_place()
        reader = Outbox(self._database, place.seq)
        while self._leadership.is_leader and place.disabled_at is None:
            seen = self._database.wakeups.count(Topic.HISTORY)
            rows = await reader.read()
            if rows:
                place = await self._hand_over(await self._renderer.render(rows), reader.position, place)
                await asyncio.sleep(self.options.pause_seconds)
            else:
                pause = GAP_SECONDS if reader.is_waiting else POLL_SECONDS
                await self._database.wakeups.wait(Topic.HISTORY, seen, pause)

    async def _find_place(self) -> Sink:
        """A new target gets what happens from now on."""
        name = self._target.name
        place = await self._database.read(lambda tx: sinks.read_sink(tx, name))
        if place is None:
            end = await find_end(self._database)
            await self._fenced.transact(lambda tx: sinks.add_sink(tx, name, end))
            place = await self._database.read(lambda tx: sinks.read_sink(tx, name))
        if place is None:
            raise Unavailable(f"the event sink {name} was taken away")
        return place

    async def _hand_over(self, events: Sequence[Event], position: int, place: Sink) -> Sink:
        """Again and again until they are taken, the target is given up, or another node leads."""
        while self._leadership.is_leader:
            try:
                if events:
                    await self._target.send(events)
            except SinkFailed as error:
                noted = await self._note_failure(str(error))
                if noted is None or noted.disabled_at is not None:
                    return noted or place
                await asyncio.sleep(self.options.retry_seconds or self._backoff.next_seconds())
            else:
                self._backoff.reset()
                self._metrics.count_delivered(self._target.name, len(events))
                await self._fenced.transact(lambda tx: sinks.move_sink(tx, self._target.name, position))
                break
        return place

    async def _note_failure(self, reason: str) -> Sink | None:
        name, patience = self._target.name, self.options.give_up_seconds
        self._metrics.count_delivery_failure(name)
        noted = await self._fenced.transact(lambda tx: sinks.note_failure(tx, name, reason, give_up_seconds=patience))
        is_disabled = noted is not None and noted.disabled_at is not None
        log.warning("event_sink_disabled" if is_disabled else "events_not_taken", sink=name, reason=reason)
        return noted
