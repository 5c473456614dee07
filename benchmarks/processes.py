"""Rota's own processes, started for a measurement, and what the system says of them."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


@asynccontextmanager
async def run_rota(*arguments: str, ready: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, re.Match[str]]]:
    """A process of the command line, and the line of its output that said it is ready."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rota", *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "ROTA_LOG_LEVEL": "ERROR"},
    )
    try:
        yield process, await asyncio.wait_for(_find_line(process, ready), 30)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _find_line(process: asyncio.subprocess.Process, pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        found = re.search(pattern, line)
        if found:
            return found
    raise RuntimeError(f"the process ended without a line like {pattern!r}")


@asynccontextmanager
async def run_server(database_url: str, command: str = "api") -> AsyncIterator[int]:
    """A process with the API in it (`api`, or `node` with the scheduler); its port."""
    arguments = (command, "--port", "0", "--database-url", database_url)
    async with run_rota(*arguments, ready=r"listens on http://\S+:(\d+)") as (_process, line):
        yield int(line[1])


@asynccontextmanager
async def run_worker_process(port: int, concurrency: int, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process that speaks HTTP with the server on this port."""
    arguments = ("worker", "--server", f"http://127.0.0.1:{port}", "--concurrency", str(concurrency))
    async with run_rota(*arguments, "--metrics-port", "0", *more, ready="asks") as (process, _line):
        yield process


def find_family(process_id: int) -> list[int]:
    """A process and those below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [process_id]
    for known in found:
        found += parents.get(known, [])
    return found


def read_memory_mb(process_ids: list[int]) -> float:
    """What these processes keep in memory, added up."""
    total = 0
    for process_id in process_ids:
        try:
            found = _RSS.search(Path(f"/proc/{process_id}/status").read_text())
        except OSError:
            continue
        total += int(found[1]) if found else 0
    return total / 1024
