"""Engine and worker together in one process, as `rota up` runs them."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import select

from benchmarks.machine import measure_spawning
from benchmarks.measure import Measure, percentile
from benchmarks.stage import Place, Stage, open_stage
from rota.engine.engine import RunRequest
from rota.store.database import Transaction
from rota.store.tables import task_runs
from rota.store.wakeups import Topic
from rota.worker.options import WorkerOptions
from rota.worker.service import Worker

PROCESS = {"name": "only", "python": "benchmarks.tasks:do_nothing"}
INLINE = {"name": "only", "python": "benchmarks.tasks:do_nothing_inline", "isolation": "inline"}
SHELL = {"name": "only", "command": ["/bin/true"]}


@asynccontextmanager
async def run_worker(stage: Stage, concurrency: int, processes: int = 2) -> AsyncIterator[Worker]:
    """A worker on the engine itself."""
    options = WorkerOptions(
        name="bench",
        concurrency=concurrency,
        python_processes=processes,
        grace_seconds=1,
        http_allow=("127.0.0.0/8",),
    )
    worker = Worker(stage.engine, options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task


async def has_open(stage: Stage) -> bool:
    """Whether a task run is not final."""

    async def look(transaction: Transaction) -> bool:
        rows = await transaction.rows(select(task_runs.c.id).where(task_runs.c.finished_at.is_(None)).limit(1))
        return bool(rows)

    return await stage.database.read(look)


async def wait_until_done(stage: Stage) -> None:
    """Until every task run is final."""
    seen = stage.database.wakeups.count(Topic.HISTORY)
    while await has_open(stage):
        await stage.database.wakeups.wait(Topic.HISTORY, seen, 1.0)
        seen = stage.database.wakeups.count(Topic.HISTORY)


async def _measure_rate(place: Place, task: dict[str, Any], count: int, concurrency: int) -> float:
    """From the start of a worker, its children included, to the durable record of the last of many waiting tasks."""
    async with open_stage(place) as stage:
        workflow_id = await stage.define("no-op", [task])
        for _ in range(0, count, 1000):
            await stage.engine.submit_many([RunRequest(workflow_id)] * min(1000, count))
        start = time.perf_counter()
        async with run_worker(stage, concurrency):
            await wait_until_done(stage)
            return count / (time.perf_counter() - start)


async def measure_python(place: Place, *, count: int) -> list[Measure]:
    """No-op Python tasks, created and executed and recorded durably."""
    process = await _measure_rate(place, PROCESS, count, 600)
    inline = await _measure_rate(place, INLINE, count, 600)
    return [
        Measure(f"{place.kind}: embedded no-op Python tasks, child processes", process, "/s", 5_000),
        Measure(f"{place.kind}: embedded no-op Python tasks, inline", inline, "/s", 8_000),
    ]


async def measure_shell(place: Place, *, count: int) -> list[Measure]:
    """Tasks that run /bin/true, against what asyncio alone spawns in the same run."""
    alone = (await measure_spawning(count, 8)).value
    rate = await _measure_rate(place, SHELL, count, 16)
    return [
        Measure(f"{place.kind}: shell tasks /bin/true", rate, "/s"),
        Measure(f"{place.kind}: shell tasks, share of the machine's own spawn rate", rate / alone, "", 0.6),
    ]


async def measure_http(place: Place, *, count: int) -> list[Measure]:
    """HTTP tasks, each a request to a server on this machine that answers at once."""
    command = (sys.executable, "-m", "benchmarks.sink")
    sink = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert sink.stdout is not None
        port = int(await sink.stdout.readline())
        task = {"name": "only", "http": {"url": f"http://127.0.0.1:{port}/", "payload": {"order": 7}}}
        rate = await _measure_rate(place, task, count, 200)
    finally:
        sink.terminate()
        await sink.wait()
    return [Measure(f"{place.kind}: HTTP tasks against a local server", rate, "/s", 2_000)]


async def measure_latency(place: Place, *, count: int) -> list[Measure]:
    """An idle system: from the trigger to the start of the first task, and chains through a real worker."""
    async with open_stage(place) as stage:
        workflow_id = await stage.define("one", [PROCESS])
        chain_id = await stage.define(
            "chain",
            [
                {**PROCESS, "name": f"t{number}", "depends_on": [f"t{number - 1}"] if number else []}
                for number in range(100)
            ],
        )
        async with run_worker(stage, 16):
            await stage.engine.submit(RunRequest(workflow_id))
            await wait_until_done(stage)
            waits = [await _time_start(stage, workflow_id) for _ in range(count)]
            await stage.engine.submit(RunRequest(chain_id))
            await wait_until_done(stage)
        hop = await measure_hops(stage)
    return [
        Measure(f"{place.kind}: trigger to start, p50", statistics.median(waits), "ms", 10, is_less_better=True),
        Measure(f"{place.kind}: trigger to start, p99", percentile(waits, 0.99), "ms", 30, is_less_better=True),
        Measure(f"{place.kind}: chain through a worker, one hop", hop, "ms", 5, is_less_better=True),
    ]


async def _time_start(stage: Stage, workflow_id: str) -> float:
    begun = time.time()
    submitted = await stage.engine.submit(RunRequest(workflow_id))

    async def read(transaction: Transaction) -> float | None:
        row = await transaction.row(
            select(task_runs.c.started_at, task_runs.c.finished_at).where(task_runs.c.run_id == submitted.id)
        )
        return row.started_at.timestamp() if row is not None and row.finished_at else None

    seen = stage.database.wakeups.count(Topic.HISTORY)
    while (started := await stage.database.read(read)) is None:
        await stage.database.wakeups.wait(Topic.HISTORY, seen, 1.0)
        seen = stage.database.wakeups.count(Topic.HISTORY)
    # An idle moment before the next one.
    await asyncio.sleep(0.02)
    return (started - begun) * 1000


async def measure_hops(stage: Stage) -> float:
    """Milliseconds from the start of one task of a chain to the start of the next."""

    async def read(transaction: Transaction) -> list[float]:
        rows = await transaction.rows(
            select(task_runs.c.started_at).where(task_runs.c.downstream_count > 0).order_by(task_runs.c.started_at)
        )
        return [row.started_at.timestamp() for row in rows]

    starts = await stage.database.read(read)
    return (starts[-1] - starts[0]) / (len(starts) - 1) * 1000
