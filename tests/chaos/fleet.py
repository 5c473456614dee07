"""The processes of one storm: a server, and workers that each have a network of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
from collections import Counter
from pathlib import Path

from rota.worker import proc
from tests.acceptance.processes import Process, Server
from tests.chaos.network import Proxy

# The shortest that is allowed: what loses its owner is found soon.
LEASE_SECONDS = 3.0
# In the environment of all that runs here, and of nothing else on this machine.
MARKER = "CHAOS_MARKER"
EFFECTS = "CHAOS_EFFECTS"
TASKS = Path(__file__).with_name("tasks.py")


class WorkerSeat:
    """One worker after another, at the end of one network."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        self.proxy = Proxy()
        self.process: Process | None = None
        # One disturbance at a time.
        self.is_busy = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.popen.pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)


class Fleet:
    """Starts, kills and restarts; ends only what it has started."""

    def __init__(
        self, home: Path, database_url: str, *, workers: int, concurrency: int = 8, grace_seconds: float = 1.0
    ) -> None:
        self.marker = secrets.token_hex(8)
        self.effects = home / "effects"
        self.effects.mkdir(parents=True)
        self.database_url = database_url
        self.is_sqlite = database_url.startswith("sqlite")
        self.is_server_busy = False
        self._home = home
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._server: Server | None = None
        self._scheduler: Process | None = None
        self.seats = [WorkerSeat(f"worker-{number}", self._folder(f"worker-{number}")) for number in range(workers)]
        for seat in self.seats:
            shutil.copy(TASKS, seat.home / "chaos_tasks.py")

    def _folder(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir()
        return folder

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    async def start(self) -> None:
        self._folder("server")
        await self.start_server()
        if not self.is_sqlite:
            self._folder("scheduler")
            await self.start_scheduler()
        for seat in self.seats:
            seat.proxy.target_port = int(self.server.port)
            await seat.proxy.start()
        await asyncio.gather(*(self.start_worker(seat) for seat in self.seats))

    async def start_server(self) -> None:
        arguments = ["--port", self._server.port] if self._server else []
        if self.is_sqlite:
            arguments += ["--workers", "0"]
        self._server = await asyncio.to_thread(
            Server,
            self._home / "server",
            self.database_url,
            *arguments,
            command="up" if self.is_sqlite else "api",
            ROTA_LEASE=f"{LEASE_SECONDS}s",
        )

    async def start_scheduler(self) -> None:
        environment = {"ROTA_DATABASE_URL": self.database_url, "ROTA_LEASE": f"{LEASE_SECONDS}s"}
        self._scheduler = Process(self._home / "scheduler", "scheduler", "--metrics-port", "0", **environment)
        await asyncio.to_thread(self._scheduler.wait_for_line, "Data: ")

    async def start_worker(self, seat: WorkerSeat) -> None:
        seat.process = Process(
            seat.home,
            "worker",
            *("--server", f"http://127.0.0.1:{seat.proxy.port}", "--metrics-port", "0", "--worker-id", seat.name),
            *("--concurrency", str(self._concurrency), "--grace", f"{self._grace_seconds}s", "--drain", "10s"),
            **{MARKER: self.marker, EFFECTS: str(self.effects)},
        )
        await asyncio.to_thread(seat.process.wait_for_line, "for work")

    def kill_server(self) -> None:
        self.server.kill()

    def kill_scheduler(self) -> None:
        assert self._scheduler is not None
        self._scheduler.kill()

    def kill_worker(self, seat: WorkerSeat) -> None:
        assert seat.process is not None
        seat.process.kill()

    async def stop_workers(self) -> list[int]:
        """Asks every worker to end; their exit codes."""
        processes = [seat.process for seat in self.seats if seat.process is not None]
        return list(await asyncio.gather(*(asyncio.to_thread(process.terminate) for process in processes)))

    async def stop_server(self) -> list[int]:
        """Asks server and scheduler to end; their exit codes."""
        processes = [process for process in (self._scheduler, self._server) if process is not None]
        return list(await asyncio.gather(*(asyncio.to_thread(process.terminate) for process in processes)))

    async def end(self) -> None:
        """Whatever happened: nothing of this stays."""
        for process in (self._server, self._scheduler, *(seat.process for seat in self.seats)):
            if process is not None and process.popen.poll() is None:
                process.popen.send_signal(signal.SIGCONT)
                process.kill()
        for pid in self.find_marked(only_tasks=False):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for seat in self.seats:
            await seat.proxy.close()

    def find_marked(self, *, only_tasks: bool) -> list[int]:
        """Living processes of this fleet's workers: of their tasks, or all of them."""
        found = []
        for pid in proc.list_processes():
            if proc.read_marker(pid, MARKER) != self.marker:
                continue
            is_task = proc.read_marker(pid, "ROTA_TASK_RUN_ID") != ""
            stat = proc.read_stat(pid)
            if stat is not None and stat[0] != "Z" and (is_task or not only_tasks):
                found.append(pid)
        return found

    def read_problems(self) -> Counter[str]:
        """What the processes' logs hold at level `error`, or as a traceback: whose, what, how often."""
        problems: Counter[str] = Counter()
        for file in self._home.glob("*/process-*.err"):
            who = file.parent.name.partition("-")[0]
            for line in file.read_text(errors="replace").splitlines():
                found = _read_problem(line)
                if found:
                    problems[f"{who}: {found}"] += 1
        return problems


def _read_problem(line: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return line if line.startswith("Traceback") else ""
    last = str(entry.get("exception", "")).strip().rpartition("\n")[2]
    is_problem = last or entry.get("level") in ("error", "critical")
    return f"{entry.get('message')} {last[:150]}".strip() if is_problem else ""
