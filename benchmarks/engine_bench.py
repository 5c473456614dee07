"""The engine alone: claims, completions, chains, fans, creation, and what full tables cost."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from sqlalchemy import select, text

from benchmarks.measure import Measure, percentile
from benchmarks.stage import Place, Stage, open_stage, pump, succeed
from rota.domain.spec_parse import parse_workflow
from rota.engine.engine import RunRequest
from rota.store.database import Transaction
from rota.store.tables import task_runs, workflow_runs
from rota.store.wakeups import Topic

NO_OP = {"name": "only", "command": "true"}


async def measure_creation_and_throughput(place: Place, *, count: int) -> list[Measure]:
    """Runs of one task: created in bulk, then claimed and completed in batches by two pumps."""
    async with open_stage(place) as stage:
        workflow_id = await stage.define("one", [NO_OP])
        start = time.perf_counter()
        for _ in range(0, count, 1000):
            await stage.engine.submit_many([RunRequest(workflow_id)] * 1000)
        created = count / (time.perf_counter() - start)
        start = time.perf_counter()
        done = sum(await asyncio.gather(pump(stage, 200), pump(stage, 200)))
        rate = done / (time.perf_counter() - start)
        if done != count:
            raise RuntimeError(f"{count} runs were created and {done} completed")
    return [
        Measure(f"{place.kind}: one-task runs created in bulk", created, "/s", 20_000),
        Measure(f"{place.kind}: one-task runs claimed and completed", rate, "/s", 10_000),
    ]


async def measure_chain(place: Place, *, length: int) -> list[Measure]:
    """Tasks one after the other, each completed and the next claimed as a worker does it."""
    async with open_stage(place) as stage:
        tasks = [
            {"name": f"t{place_}", "command": "true", "depends_on": [f"t{place_ - 1}"] if place_ else []}
            for place_ in range(length)
        ]
        workflow_id = await stage.define("chain", tasks)
        await stage.engine.submit(RunRequest(workflow_id))
        assignments = await stage.engine.claim(stage.worker, limit=1)
        start = time.perf_counter()
        hops = 0
        while assignments:
            reply = await stage.engine.report(stage.worker, succeed(assignments), claim=1)
            assignments = reply.assignments
            hops += 1
        hop = (time.perf_counter() - start) / hops * 1000
    return [Measure(f"{place.kind}: chain, one hop", hop, "ms", 4, is_less_better=True)]


async def measure_nest(place: Place, *, levels: int, rounds: int) -> list[Measure]:
    """Workflows that call one another, level by level, down to one task and up again."""
    times = []
    async with open_stage(place) as stage:
        await stage.define(f"level{levels}", [NO_OP])
        for level in range(levels - 1, -1, -1):
            top_id = await stage.define(f"level{level}", [{"name": "call", "workflow": f"level{level + 1}"}])
        for _ in range(rounds):
            start = time.perf_counter()
            run = await stage.engine.submit(RunRequest(top_id))
            assignments = await stage.engine.claim(stage.worker, limit=1, wait_seconds=60)
            await stage.engine.report(stage.worker, succeed(assignments))
            await _wait_for_end(stage, run.id)
            times.append((time.perf_counter() - start) / levels * 1000)
    name = f"{place.kind}: nest of {levels} sub-workflows, one level down and up, median"
    return [Measure(name, percentile(times, 0.5), "ms", 30, is_less_better=True)]


async def _wait_for_end(stage: Stage, run_id: str | None) -> None:
    finished_at = select(workflow_runs.c.finished_at).where(workflow_runs.c.id == run_id)
    while True:
        seen = stage.database.wakeups.count(Topic.HISTORY)
        row = await stage.database.read(lambda transaction: transaction.row(finished_at))
        if row is not None and row.finished_at is not None:
            return
        await stage.database.wakeups.wait(Topic.HISTORY, seen, 1.0)


async def measure_fan(place: Place, *, width: int) -> list[Measure]:
    """One task, then many at once, then one that waits for all; and what saving and starting such a DAG costs."""
    async with open_stage(place) as stage:
        names = [f"t{number}" for number in range(width - 2)]
        tasks = [
            {"name": "first", "command": "true"},
            *({"name": name, "command": "true", "depends_on": ["first"]} for name in names),
            {"name": "last", "command": "true", "depends_on": names},
        ]
        document = {"name": "fan", "max_active_runs": 0, "tasks": tasks}
        start = time.perf_counter()
        spec = parse_workflow(document, now=datetime.now(UTC))
        validated = time.perf_counter() - start
        workflow_id = (await stage.engine.create_workflow(spec)).id
        start = time.perf_counter()
        await stage.engine.submit(RunRequest(workflow_id))
        submitted = time.perf_counter() - start
        start = time.perf_counter()
        first = await stage.engine.claim(stage.worker, limit=1)
        await stage.engine.report(stage.worker, succeed(first))
        total = len(first)
        while done := sum(await asyncio.gather(pump(stage, 200), pump(stage, 200))):
            total += done
        rate = total / (time.perf_counter() - start)
    return [
        Measure(f"{place.kind}: DAG of {width} tasks validated", validated, "s", 1, is_less_better=True),
        Measure(f"{place.kind}: DAG of {width} tasks submitted", submitted, "s", 2, is_less_better=True),
        Measure(f"{place.kind}: fan-out 1 → {width} → 1", rate, "task runs/s", 10_000),
    ]


async def _time_claims(stage: Stage, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        assignments = await stage.engine.claim(stage.worker, limit=10)
        times.append((time.perf_counter() - start) * 1000)
        await stage.engine.report(stage.worker, succeed(assignments))
    return times


async def measure_flatness(place: Place, *, finished: int, waiting: int) -> list[Measure]:
    """Claims on an empty database, and beside many finished and waiting task runs."""
    rounds = 300
    async with open_stage(place) as stage:
        workflow_id = await stage.define("one", [NO_OP])
        await stage.engine.submit_many([RunRequest(workflow_id)] * (rounds * 10 + 500))
        await _time_claims(stage, 50)
        empty = await _time_claims(stage, rounds)
        await pump(stage, 500)
        await _store_finished(stage, workflow_id, finished)
        for _ in range(0, waiting, 1000):
            await stage.engine.submit_many([RunRequest(workflow_id)] * 1000)
        await _time_claims(stage, 50)
        full = await _time_claims(stage, rounds)
    before, after = percentile(empty, 0.99), percentile(full, 0.99)
    return [
        Measure(f"{place.kind}: claim of 10, p99, empty database", before, "ms", is_less_better=True),
        Measure(
            f"{place.kind}: claim of 10, p99, {finished} finished and {waiting} waiting, against empty",
            after / before,
            "times",
            2,
            is_less_better=True,
        ),
    ]


async def _store_finished(stage: Stage, workflow_id: str, count: int) -> None:
    """One finished run, copied inside the database."""
    submitted = await stage.engine.submit(RunRequest(workflow_id))
    await pump(stage, 1)
    if stage.database.is_sqlite:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)"
        new_id = "printf('00000000-0000-7000-8000-%012x', n.i)"
    else:
        numbers = "WITH n AS (SELECT generate_series(1, :count) AS i)"
        new_id = "CAST('00000000-0000-7000-8000-' || lpad(to_hex(n.i), 12, '0') AS uuid)"

    async def copy(transaction: Transaction) -> None:
        for table, owned in ((workflow_runs, {"id"}), (task_runs, {"id", "run_id"})):
            names = [column.name for column in table.columns]
            values = ", ".join(new_id if name in owned else f"t.{name}" for name in names)
            owner = "t.id" if table is workflow_runs else "t.run_id"
            await transaction.run(
                text(
                    f"{numbers} INSERT INTO {table.name} ({', '.join(names)}) "
                    f"SELECT {values} FROM {table.name} t CROSS JOIN n WHERE {owner} = :template"
                    if not stage.database.is_sqlite
                    else f"INSERT INTO {table.name} ({', '.join(names)}) {numbers} "
                    f"SELECT {values} FROM {table.name} t CROSS JOIN n WHERE {owner} = :template"
                ),
                {"count": count, "template": submitted.id},
            )

    await stage.database.transact(copy)
