"""What this machine can do at all: the yardstick for every figure of the same run."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Measure


def measure_python() -> Measure:
    """How fast a plain loop is: other work on the machine shows here."""
    start = time.perf_counter()
    total = 0
    for number in range(5_000_000):
        total += number
    return Measure("machine: additions in a Python loop", 5_000_000 / (time.perf_counter() - start) / 1e6, "million/s")


def measure_sync() -> Measure:
    """How long a small durable write takes."""
    with tempfile.TemporaryDirectory() as folder:
        descriptor = os.open(Path(folder) / "file", os.O_CREAT | os.O_WRONLY)
        start = time.perf_counter()
        for _ in range(200):
            os.write(descriptor, b"x" * 4096)
            os.fdatasync(descriptor)
        elapsed = time.perf_counter() - start
        os.close(descriptor)
    return Measure("machine: 4 KB write and fdatasync", elapsed / 200 * 1000, "ms", is_less_better=True)


def measure_sqlite() -> Measure:
    """Rows inserted by SQLite in durable transactions of 200."""
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(Path(folder) / "raw.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, body TEXT)")
        start = time.perf_counter()
        for part in range(100):
            connection.execute("BEGIN IMMEDIATE")
            rows = [(f"{part:06d}{row:06d}", "x" * 100) for row in range(200)]
            connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
            connection.execute("COMMIT")
        elapsed = time.perf_counter() - start
        connection.close()
    return Measure("machine: raw SQLite inserts, 200 a transaction", 20_000 / elapsed, "rows/s")


async def measure_spawning(count: int = 1000, width: int = 8) -> Measure:
    """Processes that asyncio starts and reaps, eight at a time."""
    left = iter(range(count))

    async def spawn() -> None:
        for _ in left:
            process = await asyncio.create_subprocess_exec("/bin/true")
            await process.wait()

    start = time.perf_counter()
    await asyncio.gather(*(spawn() for _ in range(width)))
    return Measure("machine: /bin/true from asyncio, eight at a time", count / (time.perf_counter() - start), "/s")
