"""The hub: reads the history once for everybody in this process who follows it, and only while somebody does."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from rota.domain.errors import RotaError
from rota.domain.events import Event, EventFilter
from rota.events.follower import Follower, Page
from rota.events.outbox import Outbox, find_end
from rota.events.render import Renderer, make_heartbeat
from rota.events.ring import Encoder, Ring
from rota.observability.metrics import Metrics
from rota.store import outbox
from rota.store.database import Database
from rota.store.schedules import read_now
from rota.store.wakeups import Topic

log = structlog.get_logger(__name__)

# A wake-up can get lost with the process that should have sent it.
POLL_SECONDS = 2.0
# While a change must wait for one before it, of which nobody may say when it is there, or that it never will be.
SHORTEST_GAP_SECONDS, LONGEST_GAP_SECONDS = 0.002, 0.1
FAILED_SECONDS = 0.5
# What is sent to many in one piece.
BATCH_EVENTS = 250
PAGE_ROWS = 500
PAGES_KEPT = 16
PAGES_AT_ONCE = 2
MOST_HEARTBEATS = 1_000


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Bounds of the hub."""

    # Of the events that are kept for those who come back after a moment, and for those who are a little slow.
    kept_bytes: int = 8_000_000
    # Of the history, when the first follower comes.
    kept_changes: int = 1_000
    # Between two looks at the history: the more followers there are, the more is worth sending at once.
    pause_seconds: float = 0.004
    pause_seconds_per_follower: float = 0.00002
    heartbeat_seconds: float = 2.0


class Hub:
    """Runs until it is cancelled. Whoever follows it gets every event once, in the order of `seq`."""

    def __init__(
        self, database: Database, options: HubOptions | None = None, *, metrics: Metrics | None = None
    ) -> None:
        self.options = options or HubOptions()
        self.ring = Ring(self.options.kept_bytes)
        self._database = database
        self._metrics = metrics or Metrics()
        self._renderer = Renderer(database)
        self._followers: set[Follower] = set()
        self._called = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_ready = False
        self._pages: OrderedDict[int, asyncio.Task[Page]] = OrderedDict()
        self._page_turns = asyncio.Semaphore(PAGES_AT_ONCE)

    # --- for those who follow -----------------------------------------------------------------------------------

    def follow(self, wanted: EventFilter, encode: Encoder, since: int | None = None) -> Follower:
        """Somebody who wants these events: from now on, or all after the change `since`."""
        return Follower(self, wanted, encode, since)

    @property
    def follower_count(self) -> int:
        return len(self._followers)

    def add(self, follower: Follower) -> None:
        self._followers.add(follower)
        self._metrics.set_followers(len(self._followers))
        self._called.set()

    def remove(self, follower: Follower) -> None:
        self._followers.discard(follower)
        self._metrics.set_followers(len(self._followers))

    async def wait_until_ready(self) -> None:
        """Until it is known up to where the history has been read."""
        while not self._is_ready:
            await self._changed.wait()

    async def wait_for_more(self) -> None:
        await self._changed.wait()

    async def read_page(self, since: int) -> Page:
        """Some events after the change `since`, from the database. Who asks for the same shares the answer."""
        task = self._pages.get(since)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._pages[since] = asyncio.create_task(self._read_page(since))
            if len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        return await asyncio.shield(task)

    async def _read_page(self, since: int) -> Page:
        end = self.ring.position
        async with self._page_turns:
            rows = await self._database.read(lambda tx: outbox.read_changes(tx, since, PAGE_ROWS, up_to=end))
            events = await self._renderer.render(rows)
        if len(rows) < PAGE_ROWS:
            # There will be more after it: not to be kept for others.
            self._pages.pop(since, None)
            return Page(events, end)
        return Page(events, rows[-1].seq)

    # --- the relay ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Relays while somebody follows."""
        while True:
            await self._called.wait()
            try:
                async with asyncio.TaskGroup() as group:
                    beating = group.create_task(self._relay_heartbeats())
                    await self._relay_changes()
                    beating.cancel()
            except* RotaError as errors:
                log.warning("events_put_off", reason=str(errors.exceptions[0]))
                await asyncio.sleep(FAILED_SECONDS)
            except* Exception:
                log.exception("events_failed")
                await asyncio.sleep(FAILED_SECONDS)

    async def _relay_changes(self) -> None:
        reader = Outbox(self._database, self.ring.position) if self._is_ready else await self._begin()
        gap_seconds = SHORTEST_GAP_SECONDS
        while self._followers:
            seen = self._database.wakeups.count(Topic.HISTORY)
            rows = await reader.read()
            if rows:
                self._observe_lag(rows[0].changed_at)
                self._publish(await self._renderer.render(rows), reader.position)
                gap_seconds = SHORTEST_GAP_SECONDS
                await asyncio.sleep(
                    self.options.pause_seconds + len(self._followers) * self.options.pause_seconds_per_follower
                )
            elif reader.is_waiting:
                await self._database.wakeups.wait(Topic.HISTORY, seen, gap_seconds)
                gap_seconds = min(gap_seconds * 2, LONGEST_GAP_SECONDS)
            else:
                await self._database.wakeups.wait(Topic.HISTORY, seen, POLL_SECONDS)
        self._is_ready = False
        self._called.clear()

    async def _begin(self) -> Outbox:
        """At the end of the history. A little of what came before is kept for those who were away for a moment."""
        end = await find_end(self._database)
        start = max(0, end - self.options.kept_changes)
        rows = await self._database.read(
            lambda tx: outbox.read_changes(tx, start, self.options.kept_changes, up_to=end)
        )
        self.ring.restart(start)
        self._publish(await self._renderer.render(rows), end)
        self._is_ready = True
        self._call()
        return Outbox(self._database, end)

    def _publish(self, events: Sequence[Event], position: int) -> None:
        for start in range(0, len(events), BATCH_EVENTS):
            part = events[start : start + BATCH_EVENTS]
            is_end = start + BATCH_EVENTS >= len(events)
            self.ring.add(part, position if is_end else part[-1].seq)
        if not events:
            # Changes that are no events: nobody needs to hear of them, but they are behind us.
            self.ring.position = position
        self._call()

    def _call(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _observe_lag(self, changed_at: datetime) -> None:
        self._metrics.observe_event_lag(max(0.0, time.time() - changed_at.timestamp()))

    async def _relay_heartbeats(self) -> None:
        """Who has been heard of, now and then, while somebody wants to know."""
        heard_at = await self._database.read(read_now)
        while True:
            await asyncio.sleep(self.options.heartbeat_seconds)
            if not self._is_ready or not any(follower.wanted.wants_heartbeats for follower in self._followers):
                continue
            rows = await self._database.read(partial(outbox.read_heartbeats, after=heard_at, limit=MOST_HEARTBEATS))
            if rows:
                heard_at = rows[-1].last_heartbeat
                position = self.ring.position
                self.ring.add([make_heartbeat(row, position) for row in rows], position, is_lasting=False)
                self._call()
