"""One API process and worker processes that speak HTTP with it, each measured as the database recorded it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy import func, select

from benchmarks.measure import Measure
from benchmarks.processes import find_family, read_memory_mb, run_server, run_worker_process
from benchmarks.stage import Place, Stage, open_stage
from benchmarks.worker_bench import INLINE, PROCESS, has_open, measure_hops
from rota.engine.engine import RunRequest
from rota.store.database import Transaction
from rota.store.tables import task_runs

T = TypeVar("T")
# Looks of the measuring process; what is measured are the instants that the database keeps.
LOOK_SECONDS = 0.05


async def _wait_for(look: Callable[[], Awaitable[T]]) -> T:
    """What `look` answers as soon as that is true. Other processes do the work, so nobody wakes this one up."""
    while True:
        found = await look()
        if found:
            return found
        await asyncio.sleep(LOOK_SECONDS)


async def _wait_until_done(stage: Stage) -> None:
    async def look() -> bool:
        return not await has_open(stage)

    await _wait_for(look)


async def _measure_rate(place: Place, task: dict[str, Any], count: int) -> float:
    """From the first start to the last end, both as they are recorded."""
    async with open_stage(place) as stage:
        workflow_id = await stage.define("no-op", [task])
        for _ in range(0, count, 1000):
            await stage.engine.submit_many([RunRequest(workflow_id)] * 1000)
        async with run_server(stage.url) as port, run_worker_process(port, 600, "--python-processes", "2"):
            await _wait_until_done(stage)
        first, last = await stage.database.read(_read_span)
        return count / (last - first)


async def _read_span(transaction: Transaction) -> tuple[float, float]:
    row = await transaction.row(select(func.min(task_runs.c.started_at), func.max(task_runs.c.finished_at)))
    assert row is not None
    return row[0].timestamp(), row[1].timestamp()


async def measure_remote(place: Place, *, count: int) -> list[Measure]:
    """No-op Python tasks and a chain of them, with everything going over HTTP."""
    process = await _measure_rate(place, PROCESS, count)
    inline = await _measure_rate(place, INLINE, count)
    async with open_stage(place) as stage:
        chain = [
            {**PROCESS, "name": f"t{number}", "depends_on": [f"t{number - 1}"] if number else []}
            for number in range(200)
        ]
        chain_id = await stage.define("chain", chain)
        async with run_server(stage.url) as port, run_worker_process(port, 16):
            await stage.engine.submit(RunRequest(chain_id))
            await _wait_until_done(stage)
        hop = await measure_hops(stage)
    return [
        Measure(f"{place.kind}: no-op Python tasks over HTTP, child processes", process, "/s", 3_000),
        Measure(f"{place.kind}: no-op Python tasks over HTTP, inline", inline, "/s", 5_000),
        Measure(f"{place.kind}: chain over HTTP, one hop", hop, "ms", 10, is_less_better=True),
    ]


async def measure_memory(place: Place, *, sleepers: int, megabytes: int) -> list[Measure]:
    """Many sleeping tasks at once, and one that prints without end: what the worker itself needs for them."""
    async with open_stage(place) as stage:
        sleeping_id = await stage.define("sleepers", [{"name": "only", "command": ["sleep", "600"]}])
        async with run_server(stage.url) as port, run_worker_process(port, sleepers, "--drain", "0s") as worker:
            await stage.engine.submit_many([RunRequest(sleeping_id)] * sleepers)
            tasks = await _wait_for_sleepers(worker.pid, sleepers)
            family = [process for process in find_family(worker.pid) if process not in tasks]
            sleeping_mb = read_memory_mb(family)
    async with open_stage(place) as stage:
        command = f"yes 0123456789012345678901234567890 | head -c {megabytes}M"
        printing_id = await stage.define("printer", [{"name": "only", "command": command}])
        async with run_server(stage.url) as port, run_worker_process(port, 4) as worker:
            await stage.engine.submit(RunRequest(printing_id))
            printing_mb = 0.0
            while await has_open(stage):
                printing_mb = max(printing_mb, read_memory_mb([worker.pid]))
                await asyncio.sleep(LOOK_SECONDS)
        first, last = await stage.database.read(_read_span)
    return [
        Measure(f"{place.kind}: worker with {sleepers} sleeping tasks", sleeping_mb, "MB", 300, is_less_better=True),
        Measure(f"{place.kind}: worker while a task prints", printing_mb, "MB", 150, is_less_better=True),
        Measure(f"{place.kind}: a task that prints {megabytes} MB", megabytes / (last - first), "MB/s", 50),
    ]


async def _wait_for_sleepers(worker_id: int, count: int) -> set[int]:
    """The processes of the tasks, once all of them are there."""

    async def look() -> set[int]:
        sleeping = {process for process in find_family(worker_id) if _read_command(process).startswith(b"sleep\0")}
        return sleeping if len(sleeping) >= count else set()

    return await _wait_for(look)


def _read_command(process_id: int) -> bytes:
    try:
        with open(f"/proc/{process_id}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


async def measure_lost_worker(place: Place) -> list[Measure]:
    """A worker is killed in the middle of a task: when it starts again on another one."""
    async with open_stage(place) as stage, run_server(stage.url, "node") as port:
        workflow_id = await stage.define("long", [{"name": "only", "command": ["sleep", "30"]}])
        async with run_worker_process(port, 1, "--worker-id", "doomed") as doomed:
            await stage.engine.submit(RunRequest(workflow_id))
            await _wait_for_attempt(stage, 1)
            async with run_worker_process(port, 1, "--worker-id", "heir", "--drain", "0s"):
                doomed.kill()
                killed_at = time.time()
                started_at = await _wait_for_attempt(stage, 2)
    waited = started_at - killed_at
    return [Measure(f"{place.kind}: killed worker's task starts elsewhere", waited, "s", 5, is_less_better=True)]


async def _wait_for_attempt(stage: Stage, attempt: int) -> float:
    async def read(transaction: Transaction) -> float:
        row = await transaction.row(
            select(task_runs.c.started_at).where(task_runs.c.attempt == attempt, task_runs.c.status == "running")
        )
        return float(row.started_at.timestamp()) if row is not None else 0.0

    return await _wait_for(lambda: stage.database.read(read))
