"""Schedules: how late runs are created when many are due at once, and what stored schedules cost."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import text

from benchmarks.measure import Measure, percentile
from benchmarks.stage import Place, Stage, open_stage
from rota.domain.job import parse_job
from rota.engine.core import EngineOptions
from rota.engine.engine import Engine
from rota.engine.fire import FireReport
from rota.scheduler.service import Scheduler, SchedulerOptions
from rota.store.database import Transaction
from rota.store.tables import schedules, workflows

BATCH = 1_000


class TimedEngine(Engine):
    """Notes when the runs of each batch were committed."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.database, EngineOptions())
        self.created: list[tuple[float, int]] = []

    async def fire(self) -> FireReport:
        report = await super().fire()
        self.created.append((time.time(), report.runs))
        return report

    @property
    def count(self) -> int:
        return sum(runs for _at, runs in self.created)


async def _store(stage: Stage, count: int, rule: dict[str, object]) -> None:
    spec = parse_job({"command": "true", **rule}, now=datetime.now(UTC))
    for start in range(0, count, BATCH):
        await stage.engine.create_jobs([spec] * min(BATCH, count - start))


async def _time_tick(stage: Stage, count: int, wait_seconds: float) -> list[float]:
    """Milliseconds from the instant until the run of each of `count` schedules was committed."""
    due_at = (datetime.now(UTC) + timedelta(seconds=wait_seconds)).replace(microsecond=0)
    cron = f"{due_at.second} {due_at.minute} {due_at.hour} {due_at.day} {due_at.month} *"
    await _store(stage, count, {"schedule": cron})
    if datetime.now(UTC) > due_at - timedelta(seconds=2):
        raise RuntimeError(f"saving {count} schedules took longer than {wait_seconds} s")
    engine = TimedEngine(stage)
    scheduler = Scheduler(engine, options=SchedulerOptions())
    running = asyncio.create_task(scheduler.run())
    while engine.count < count:
        await asyncio.sleep(0.05)
        if datetime.now(UTC) > due_at + timedelta(seconds=60):
            raise RuntimeError(f"{engine.count} of {count} schedules have fired")
    scheduler.stop()
    await running
    return [(at - due_at.timestamp()) * 1000 for at, runs in engine.created for _ in range(runs)]


# Seconds to save the schedules in, and targets in milliseconds for p50 and p99.
Target = tuple[float, float | None, float | None]


async def measure_lateness(place: Place, *, counts: Mapping[int, Target]) -> list[Measure]:
    """How late the runs of so many schedules of one second are."""
    found = []
    for count, (wait_seconds, half, most) in counts.items():
        async with open_stage(place) as stage:
            rounds = 5 if count == 1 else 1
            late = [value for _ in range(rounds) for value in await _time_tick(stage, count, wait_seconds)]
        name = f"{place.kind}: {count:,} schedules due in one second, lateness"
        found += [
            Measure(f"{name} p50", percentile(late, 0.5), "ms", half, is_less_better=True),
            Measure(f"{name} p99", percentile(late, 0.99), "ms", most, is_less_better=True),
        ]
    return found


async def measure_stored(place: Place, *, few: int, many: int) -> list[Measure]:
    """The look for what is due, and this process's memory, beside few and many stored one-time jobs."""
    async with open_stage(place) as stage:
        later = {"timestamp": (datetime.now(UTC) + timedelta(days=300)).isoformat()}
        await _store(stage, few, later)
        before, memory = await _time_looks(stage), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await _multiply(stage, many)
        after, grown = await _time_looks(stage), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name = f"{place.kind}: {many:,} stored one-time jobs against {few:,}"
    return [
        Measure(f"{name}, due scan p50", after / before, "times", 2, is_less_better=True),
        Measure(f"{name}, memory", grown / memory, "times", 2, is_less_better=True),
    ]


async def _time_looks(stage: Stage) -> float:
    times = []
    for _ in range(300):
        start = time.perf_counter()
        await stage.engine.find_next_due()
        await stage.engine.fire()
        times.append(time.perf_counter() - start)
    return percentile(times, 0.5)


async def _multiply(stage: Stage, count: int) -> None:
    """Copies one schedule with its job inside the database."""
    if stage.database.is_sqlite:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
        new_id, head = "printf('00000000-0000-7000-8000-%012x', n.i)", "INSERT INTO {into} {numbers} SELECT {values}"
    else:
        numbers = "WITH n AS (SELECT generate_series(1, :count) AS i)"
        new_id = "CAST('00000000-0000-7000-8000-' || lpad(to_hex(n.i), 12, '0') AS uuid)"
        head = "{numbers} INSERT INTO {into} SELECT {values}"
    for table, owned in ((workflows, {"id"}), (schedules, {"id", "workflow_id"})):
        names = [column.name for column in table.columns]
        values = ", ".join(new_id if name in owned else f"t.{name}" for name in names)
        statement = head.format(into=f"{table.name} ({', '.join(names)})", numbers=numbers, values=values)
        template = f" FROM (SELECT * FROM {table.name} LIMIT 1) t CROSS JOIN n"
        await stage.database.transact(partial(_run, sql=statement + template, count=count))


async def _run(transaction: Transaction, sql: str, count: int) -> None:
    await transaction.run(text(sql), {"count": count})


async def measure_idle(place: Place, *, count: int, seconds: float) -> list[Measure]:
    """The share of a processor that a scheduler takes while nothing is due for an hour."""
    async with open_stage(place) as stage:
        at = datetime.now(UTC) + timedelta(hours=2)
        await _store(stage, count, {"schedule": f"0 {at.hour} {at.day} {at.month} *"})
        scheduler = Scheduler(stage.engine, options=SchedulerOptions())
        running = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        start, used = time.perf_counter(), time.process_time()
        await asyncio.sleep(seconds)
        share = (time.process_time() - used) / (time.perf_counter() - start) * 100
        scheduler.stop()
        await running
    return [Measure(f"{place.kind}: idle with {count:,} schedules", share, "% CPU", 1, is_less_better=True)]
