"""Cancel of many running trees at once: how soon are they all dead?"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from tests.chaos.fleet import EFFECTS, MARKER, Fleet
from tests.chaos.load import Load
from tests.chaos.report import Report
from tests.chaos.scenario import wait_for

GRACE_SECONDS = 2.0
START_SECONDS = 60.0
DEATH_SECONDS = 60.0
# The grandchild has forked twice and left its session.
TREE = f"""(setsid sh -c 'echo $$ >> "${EFFECTS}/grandchildren"; sleep 600 & sleep 600' &); sleep 600 & sleep 600"""
TASKS: tuple[dict[str, Any], ...] = (
    {"name": "tree", "command": TREE},
    {"name": "deaf", "command": f"trap '' TERM; {TREE}"},
)


async def cancel_trees(home: Path, database_url: str, *, trees: int = 200) -> tuple[Report, float]:
    """Starts so many trees, half of them deaf to TERM, and cancels them; the report, and how long they lived on."""
    name = "SQLite" if database_url.startswith("sqlite") else "PostgreSQL"
    report = Report(f"cancel of {trees} running trees on {name}, grace {GRACE_SECONDS:.0f} s")
    fleet = Fleet(home, database_url, workers=1, concurrency=trees, grace_seconds=GRACE_SECONDS)
    try:
        await fleet.start()
        load = Load(fleet.server.url, report, random.Random(0))
        try:
            took_seconds = await _cancel_all(fleet, load, report, trees)
        finally:
            await load.close()
        codes = await fleet.stop_workers() + await fleet.stop_server()
        report.check(not any(codes), f"exit codes at the end: {codes}")
        report.check(not fleet.find_marked(only_tasks=False), f"processes left: {fleet.find_marked(only_tasks=False)}")
    finally:
        await fleet.end()
    return report, took_seconds


async def _cancel_all(fleet: Fleet, load: Load, report: Report, trees: int) -> float:
    status, answer = await load.call("POST", "/workflows", {"name": "trees", "tasks": TASKS, "max_active_runs": trees})
    assert status == 201, answer
    triggered = [await load.call("POST", "/workflows/trees/trigger", {}) for _ in range(trees // len(TASKS))]
    run_ids = [answer["id"] for _status, answer in triggered]
    await _wait_for_trees(fleet, report, trees)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    cancels = await asyncio.gather(
        *(load.call("POST", f"/workflow-runs/{run_id}/cancel", {"reason": "enough"}) for run_id in run_ids)
    )
    refused = [status for status, _answer in cancels if status != 200]
    report.check(not refused, f"cancels answered {refused}")
    report.notes.append(f"the cancels were acknowledged within {loop.time() - began_at:.1f} s")

    async def is_dead() -> bool:
        return not fleet.find_marked(only_tasks=True)

    dead = await wait_for(is_dead, DEATH_SECONDS)
    took_seconds = loop.time() - began_at
    report.check(
        dead is not None, f"alive {DEATH_SECONDS:.0f} s after the cancel: {fleet.find_marked(only_tasks=True)}"
    )
    report.notes.append(f"all dead {took_seconds:.1f} s after the first cancel was sent")
    await _check_ends(load, report, run_ids)
    return took_seconds


async def _wait_for_trees(fleet: Fleet, report: Report, trees: int) -> None:
    grandchildren = fleet.effects / "grandchildren"

    async def is_grown() -> bool:
        return grandchildren.exists() and len(grandchildren.read_text().split()) == trees

    grown = await wait_for(is_grown, START_SECONDS)
    assert grown is not None, f"{len(grandchildren.read_text().split())} of {trees} trees were started"
    alive = fleet.find_marked(only_tasks=True)
    report.count("processes before the cancel", len(alive))
    missing = {int(pid) for pid in grandchildren.read_text().split()} - set(alive)
    report.check(not missing, f"grandchildren that do not carry {MARKER}, or are dead before the cancel: {missing}")


async def _check_ends(load: Load, report: Report, run_ids: list[str]) -> None:
    async def is_drained() -> bool:
        return await load.count_open() == 0

    report.check(await wait_for(is_drained, DEATH_SECONDS) is not None, "not every run has ended")
    for run_id in run_ids:
        status, run = await load.call("GET", f"/workflow-runs/{run_id}")
        assert status == 200, run
        report.count(f"runs that ended {run['status']}")
        for row in run["task_runs"]:
            report.count(f"task runs that ended {row['status']}")
            report.check(row["status"] == "cancelled", f"{row['task']} of {run_id} is {row['status']}")
            status, found = await load.call("GET", f"/task-runs/{row['id']}")
            assert status == 200, found
            unconfirmed = [attempt for attempt in found["attempts"] if attempt["is_unconfirmed"]]
            report.check(not unconfirmed, f"the death of {row['task']} of {run_id} was not confirmed: {unconfirmed}")
