"""The loops around the duties: those that wait for the next due instant, and those that come round again and again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from rota.domain.errors import Unavailable
from rota.engine.engine import Engine
from rota.observability.metrics import Metrics
from rota.scheduler.duties import (
    Duty,
    Leadership,
    PrepareDuty,
    RearmDuty,
    build_due_duties,
    build_duties,
    build_housekeeping,
)
from rota.scheduler.polls import PollDuty
from rota.store.wakeups import Topic

log = structlog.get_logger(__name__)
T = TypeVar("T")

# Something is due but another node has it, or it cannot be done: look again after this time, not at once.
CONTENDED_SECONDS = 0.02
FAILED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """How often to look, and how long to keep what has ended."""

    # The longest time between two looks, even if no wake-up came.
    slot_gap_seconds: float = 10.0
    retention_seconds: float = 30 * 86_400.0
    # Private address ranges that waits for HTTP may reach.
    http_allow: tuple[str, ...] = ()


class Scheduler:
    """Runs until `stop` is called. Any number of them may run on one database."""

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics | None = None,
        options: SchedulerOptions | None = None,
        *,
        duties: Iterable[Duty] = (),
        leadership: Leadership | None = None,
    ) -> None:
        self.options = options or SchedulerOptions()
        self._engine = engine
        self._metrics = metrics or Metrics()
        self._polls = PollDuty(engine, self.options.http_allow)
        self._due = build_due_duties(engine, self._metrics, self.options.slot_gap_seconds)
        self._duties: tuple[Duty, ...] = (
            RearmDuty(engine),
            PrepareDuty(engine, self.options.slot_gap_seconds),
            *build_duties(engine, self._metrics),
            *build_housekeeping(engine, leadership, retention_seconds=self.options.retention_seconds),
            self._polls,
            *duties,
        )
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Does its duties until `stop`; a round under way is finished."""
        log.info("scheduler_started", duties=[duty.name for duty in (*self._due, *self._duties)])
        try:
            async with self._polls, asyncio.TaskGroup() as group:
                group.create_task(self._follow_clock(), name="rota-clock")
                for duty in self._duties:
                    group.create_task(self._repeat(duty), name=f"rota-{duty.name}")
        finally:
            log.info("scheduler_stopped")

    def stop(self) -> None:
        self._stopping.set()
        self._engine.database.wakeups.call_locally([Topic.SCHEDULES])

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def run_due(self) -> float:
        """Does what is due now; how many seconds there are until something is due again."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        next_at, now = await self._engine.find_next_due()
        if next_at is None:
            return self.options.slot_gap_seconds
        if next_at > now:
            # Counted from before the question, so this wakes up a moment too early rather than too late.
            left_seconds = (next_at - now).total_seconds() - (loop.time() - asked_at)
            return max(0.0, min(self.options.slot_gap_seconds, left_seconds))
        self._metrics.observe_tick((now - next_at).total_seconds())
        done = sum([await duty.run_once() for duty in self._due])
        return 0.0 if done else CONTENDED_SECONDS

    async def _follow_clock(self) -> None:
        wakeups = self._engine.database.wakeups
        while not self.is_stopping:
            seen = wakeups.count(Topic.SCHEDULES)
            wait_seconds = await self._guard("due", self.run_due, FAILED_SECONDS)
            if wait_seconds > 0 and not self.is_stopping:
                await wakeups.wait(Topic.SCHEDULES, seen, wait_seconds)

    async def _repeat(self, duty: Duty) -> None:
        while not self.is_stopping:
            await self._guard(duty.name, duty.run_once, 0)
            await self._pause(duty.interval_seconds)

    async def _guard(self, name: str, run_round: Callable[[], Awaitable[T]], default: T) -> T:
        """One round; whatever goes wrong in it is logged, and the loop goes on."""
        started_at = time.perf_counter()
        is_failed = True
        try:
            result = await run_round()
            is_failed = False
        except Unavailable as error:
            log.warning("duty_put_off", duty=name, reason=error.detail)
            return default
        except Exception:
            log.exception("duty_failed", duty=name)
            return default
        finally:
            self._metrics.observe_duty(name, time.perf_counter() - started_at, is_failed=is_failed)
        return result

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
