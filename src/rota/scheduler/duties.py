"""What has to be done now and then. A duty knows how to do one round; the loop around it is in `service`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from rota.domain.errors import NOT_LEADER, Conflict
from rota.engine.engine import Engine
from rota.engine.time_verbs import Place
from rota.observability.metrics import Metrics
from rota.store.database import Transaction

log = structlog.get_logger(__name__)

# Batches of one round. What is left after them waits for the next round, so that no duty keeps all others waiting.
MOST_BATCHES = 50
# Lost work is looked for this often; the leases themselves decide how long it may be silent.
REAP_SECONDS = 1.0
PRUNE_SECONDS = 60.0


class Duty(Protocol):
    """One periodic duty."""

    @property
    def name(self) -> str: ...

    @property
    def interval_seconds(self) -> float: ...

    async def run_once(self) -> int:
        """Does what is to be done now; how much that was."""
        ...


@dataclass(frozen=True, slots=True)
class BatchDuty:
    """A verb that does one batch each time it is called, until it finds nothing more."""

    name: str
    interval_seconds: float
    run_batch: Callable[[], Awaitable[int]]

    async def run_once(self) -> int:
        done = 0
        for _ in range(MOST_BATCHES):
            count = await self.run_batch()
            done += count
            if not count:
                break
        return done


class FireDuty:
    """Fires what is due, all batches of it."""

    name = "fire"

    def __init__(self, engine: Engine, metrics: Metrics, interval_seconds: float) -> None:
        self._engine = engine
        self._metrics = metrics
        self.interval_seconds = interval_seconds

    async def run_once(self) -> int:
        # Where writers work side by side, one batch is decided while the other is written.
        lanes = 1 if self._engine.database.is_sqlite else 2
        return sum(await asyncio.gather(*(self._fire_all() for _ in range(lanes))))

    async def _fire_all(self) -> int:
        done = 0
        for _ in range(MOST_BATCHES):
            report = await self._engine.fire()
            self._metrics.count_ticks("fired", report.runs)
            self._metrics.count_ticks("skipped", report.skipped)
            done += report.schedules
            if not report.schedules:
                break
        return done


class PrepareDuty:
    """Reads ahead what is due within the coming slot, each schedule once."""

    name = "prepare"

    def __init__(self, engine: Engine, slot_seconds: float) -> None:
        self._engine = engine
        self._slot_seconds = slot_seconds
        self._place: Place | None = None
        # Twice a slot, so that each schedule is read at least half a slot before its instant.
        self.interval_seconds = slot_seconds / 2

    async def run_once(self) -> int:
        done = 0
        while True:
            prepared = await self._engine.prepare(self._slot_seconds, self._place)
            self._place = prepared.place
            done += prepared.count
            if not prepared.count:
                return done


class RearmDuty:
    """Follows new rules of the zones. A process keeps those that it has read, so once after its start is enough."""

    name = "rearm"
    interval_seconds = 86_400.0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_done = False

    async def run_once(self) -> int:
        moved, after_id = 0, None
        while not self._is_done:
            rearmed = await self._engine.rearm(after_id)
            moved, after_id = moved + rearmed.moved, rearmed.after_id
            self._is_done = after_id is None
        return _tell("schedules_rearmed", moved)


def build_due_duties(engine: Engine, metrics: Metrics, interval_seconds: float) -> tuple[Duty, ...]:
    """What is due at instants that the database knows."""
    return (
        # First: what has failed too often is not fired any more.
        BatchDuty("review", interval_seconds, engine.review),
        FireDuty(engine, metrics, interval_seconds),
        BatchDuty("release_due", interval_seconds, engine.release_due),
        BatchDuty("expand_maps", interval_seconds, engine.expand_maps),
        BatchDuty("serve_due", interval_seconds, engine.serve_due),
        BatchDuty("settle_keys", interval_seconds, engine.settle_keys),
        BatchDuty("expire_waiting", interval_seconds, engine.expire_waiting),
    )


class Leadership(Protocol):
    """Whether this node is the one that keeps house."""

    @property
    def is_leader(self) -> bool: ...

    async def check_term(self, transaction: Transaction) -> None:
        """Raises Conflict unless this node leads; if it does, nobody else will before the transaction has ended."""
        ...


class LeaderDuty:
    """A duty that only the leader does."""

    def __init__(self, duty: Duty, leadership: Leadership) -> None:
        self.name = duty.name
        self.interval_seconds = duty.interval_seconds
        self._duty = duty
        self._leadership = leadership

    async def run_once(self) -> int:
        if not self._leadership.is_leader:
            return 0
        try:
            return await self._duty.run_once()
        except Conflict as error:
            if error.code != NOT_LEADER:
                raise
            log.info("leadership_lost", duty=self.name)
            return 0


def build_duties(engine: Engine, metrics: Metrics) -> tuple[Duty, ...]:
    """What is to be looked for again and again, on every node."""

    async def reap_attempts() -> int:
        count = await engine.reap_attempts()
        metrics.count_lost_attempts(count)
        return _tell("attempts_lost", count)

    async def reap_workers() -> int:
        return _tell("workers_lost", await engine.reap_workers())

    async def reap_runs() -> int:
        return _tell("runs_reaped", await engine.reap_runs())

    return (
        BatchDuty("follow", REAP_SECONDS, engine.follow),
        BatchDuty("reap_attempts", REAP_SECONDS, reap_attempts),
        BatchDuty("reap_workers", REAP_SECONDS, reap_workers),
        BatchDuty("reap_runs", REAP_SECONDS, reap_runs),
        BatchDuty("review", REAP_SECONDS, engine.review),
        BatchDuty("step_backfills", REAP_SECONDS, engine.step_backfills),
    )


def build_housekeeping(engine: Engine, leadership: Leadership | None, *, retention_seconds: float) -> tuple[Duty, ...]:
    """What one node does for all: the leader, or this one if it is the only one. A leader that has been replaced
    without knowing changes nothing: each transaction of these duties begins with a look at its term."""
    keeper = engine if leadership is None else engine.fenced(leadership.check_term)

    async def prune() -> int:
        return _tell("pruned", await keeper.prune(retention_seconds))

    duties: tuple[Duty, ...] = (BatchDuty("prune", PRUNE_SECONDS, prune),)
    return duties if leadership is None else tuple(LeaderDuty(duty, leadership) for duty in duties)


def _tell(event: str, count: int) -> int:
    """The count, which is worth a line in the log unless it is zero."""
    if count:
        log.info(event, count=count)
    return count
