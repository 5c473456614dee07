"""A storm from start to verdict, and the cancel of many trees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.fleet import Fleet
from tests.chaos.load import POOL, Load, read_effects
from tests.chaos.report import Report
from tests.chaos.storm import Storm
from tests.chaos.verdict import judge

DRAIN_SECONDS = 90.0
LOOK_SECONDS = 0.1
STOP_SECONDS = 15.0


async def weather_storm(
    home: Path, database_url: str, *, seconds: float, seed: int, workers: int = 3, runs_per_second: float = 4.0
) -> Report:
    """Load and storm for that long on a migrated, empty database; then calm, and the verdict."""
    name = "SQLite" if database_url.startswith("sqlite") else "PostgreSQL"
    report = Report(f"storm of {seconds:.0f} s on {name}, seed {seed}")
    fleet = Fleet(home, database_url, workers=workers)
    try:
        await fleet.start()
        load = Load(fleet.server.url, report, random.Random(seed))
        try:
            await load.define()
            submitting = asyncio.create_task(load.run(runs_per_second))
            await Storm(fleet, report, random.Random(seed + 1)).rage(seconds)
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
            await _drain(fleet, load, report)
        finally:
            await load.close()
        await _stop(fleet, report)
        await judge(
            database_url,
            report,
            acknowledged=load.acknowledged,
            cancelled=load.cancelled,
            effects=read_effects(fleet.effects),
        )
    finally:
        await fleet.end()
    return report


async def wait_for(look: Callable[[], Awaitable[bool]], seconds: float) -> float | None:
    """How long it took until `look` said yes; None if it did not in that time."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    while not await look():
        if loop.time() - began_at > seconds:
            return None
        await asyncio.sleep(LOOK_SECONDS)
    return loop.time() - began_at


async def _drain(fleet: Fleet, load: Load, report: Report) -> None:
    """With everybody well, all that was submitted comes to its end, and its processes with it."""

    async def is_drained() -> bool:
        return await load.count_open() == 0

    async def is_clean() -> bool:
        return not fleet.find_marked(only_tasks=True)

    left = await load.count_open()
    took_seconds = await wait_for(is_drained, DRAIN_SECONDS)
    if took_seconds is None:
        report.faults.append(f"{await load.count_open()} runs have not ended {DRAIN_SECONDS:.0f} s after the storm")
    else:
        report.notes.append(f"{left} runs were open after the storm and had ended {took_seconds:.1f} s later")
    if await wait_for(is_clean, STOP_SECONDS) is None:
        report.faults.append(f"processes of tasks left: {fleet.find_marked(only_tasks=True)}")
    status, pool = await load.call("GET", f"/pools/{POOL}")
    report.check(status == 200 and pool["used_slots"] == 0, f"slots held: {pool}")


async def _stop(fleet: Fleet, report: Report) -> None:
    """Everybody leaves in good order, and nothing stays."""
    codes = await fleet.stop_workers() + await fleet.stop_server()
    report.check(not any(codes), f"exit codes at the end: {codes}")

    async def is_clean() -> bool:
        return not fleet.find_marked(only_tasks=False)

    if await wait_for(is_clean, STOP_SECONDS) is None:
        report.faults.append(f"processes left: {fleet.find_marked(only_tasks=False)}")
    report.notes += [f"logged {count} x {problem}" for problem, count in sorted(fleet.read_problems().items())]
