"""Live events: from a commit to many WebSocket clients, and coming back from far behind."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.measure import Measure, percentile
from benchmarks.processes import ROOT
from benchmarks.stage import Place, open_stage
from rota.api.app import close_polls, make_api
from rota.app.http_server import HttpServer
from rota.engine.engine import Engine
from rota.events.hub import Hub
from rota.store.database import Database
from rota.store.history import Change, record_changes

RATE = 1_000
CLIENTS = 200
SAMPLED = 5
# So many changes a transaction: about what a report of a worker makes.
EVENTS_PER_COMMIT = 5
READ_LIMIT = 1 << 30


async def measure_events(place: Place, *, seconds: int, stored: int) -> list[Measure]:
    """1,000 events a second to 200 clients, all of them to each; then the whole history to one who comes back."""
    async with open_stage(place) as stage, _serve(stage.engine, stage.database) as port:
        waits = await _measure_waits(stage.database, port, RATE * seconds)
    async with open_stage(place) as stage, _serve(stage.engine, stage.database) as port:
        rate = await _measure_resume(stage.database, port, stored)
    name = f"{place.kind}: commit to client, {RATE:,} events/s, {CLIENTS} clients"
    return [
        Measure(f"{name}, p50", statistics.median(waits), "ms", 20, is_less_better=True),
        Measure(f"{name}, p99", percentile(waits, 0.99), "ms", 100, is_less_better=True),
        Measure(f"{place.kind}: {stored:,} events to one who comes back, none missing or twice", rate, "events/s"),
    ]


@asynccontextmanager
async def _serve(engine: Engine, database: Database) -> AsyncIterator[int]:
    """The API and the hub in this process, in which the changes are made, too."""
    server, hub, listening = HttpServer("127.0.0.1", 0), Hub(database), asyncio.Event()
    app = make_api(engine, database, feed=hub)
    relaying = asyncio.create_task(hub.run())
    serving = asyncio.create_task(server.run(app, listening))
    await listening.wait()
    try:
        yield int(server.url.rpartition(":")[2])
    finally:
        close_polls(app)
        server.stop()
        await serving
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)
        server.close()


@asynccontextmanager
async def _clients(port: int, clients: int, sampled: int, count: int, since: str) -> AsyncIterator[Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.event_clients"),
        *(str(port), str(clients), str(sampled), str(count), since),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        limit=READ_LIMIT,
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
        yield process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _measure_waits(database: Database, port: int, count: int) -> list[float]:
    """Milliseconds from each commit to each of the clients that were looked at."""
    async with _clients(port, CLIENTS, SAMPLED, count, "-") as output:
        committed = await _make_events(database, count)
        found = json.loads(await output.readline())
    for read in found["read"]:
        _check(read, count)
    assert found["counted"] == [count] * (CLIENTS - SAMPLED)
    return [(at - committed[number]) / 1e6 for read in found["read"] for number, at in read]


async def _make_events(database: Database, count: int) -> list[int]:
    """Makes the changes at their rate; when each was committed."""
    committed: list[int] = []
    start = time.monotonic()
    for first in range(0, count, EVENTS_PER_COMMIT):
        await asyncio.sleep(max(0.0, start + first / RATE - time.monotonic()))
        await _write(database, range(first, first + EVENTS_PER_COMMIT))
        committed += [time.monotonic_ns()] * EVENTS_PER_COMMIT
    return committed


async def _measure_resume(database: Database, port: int, count: int) -> float:
    for first in range(0, count, 1_000):
        await _write(database, range(first, first + 1_000))
    # The worker of the stage is in the history, too, before all of these.
    start = time.perf_counter()
    async with _clients(port, 1, 1, count, "0") as output:
        found = json.loads(await output.readline())
    seconds = time.perf_counter() - start
    _check(found["read"][0], count)
    return count / seconds


def _check(read: Sequence[Sequence[int]], count: int) -> None:
    if [number for number, _at in read] != list(range(count)):
        raise RuntimeError("events were missing, came twice, or in another order")


async def _write(database: Database, numbers: Sequence[int]) -> None:
    changes = []
    for number in numbers:
        run_id = str(uuid.uuid4())
        changes.append(Change("workflow_run", run_id, run_id, "default", "running", f"e{number}"))
    await database.transact(lambda tx: record_changes(tx, changes))
