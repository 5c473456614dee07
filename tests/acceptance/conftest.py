"""Processes that end with their test."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Process, Server, run_rota

Start = Callable[..., Server]
StartWorker = Callable[..., Process]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder that a user of this test works in."""
    place = tmp_path / "home"
    place.mkdir()
    return place


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Every process put in here is gone after the test."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        if process.popen.poll() is None:
            process.kill()


@pytest.fixture
def start(home: Path, database_url: str, started: list[Process]) -> Start:
    """Starts a server on the test's database."""

    def begin(*arguments: str, **environment: str) -> Server:
        server = Server(home, database_url, *arguments, **environment)
        started.append(server)
        return server

    return begin


@pytest.fixture
def start_worker(home: Path, started: list[Process]) -> StartWorker:
    """Starts a worker for a server."""

    def begin(server: Server, *arguments: str) -> Process:
        worker = Process(home, "worker", "--server", server.url, "--metrics-port", "0", *arguments)
        started.append(worker)
        worker.wait_for_line("for work")
        return worker

    return begin


@pytest.fixture
def rota(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one command to its end."""
    return functools.partial(run_rota, home)
