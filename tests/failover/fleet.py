"""The processes that live through it: nodes, a scheduler and workers, all of which know every database server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.acceptance.processes import Process, Server

NODES = 2
WORKERS = 2
LEASE = "5s"


class Fleet:
    """Starts them; ends only what it has started."""

    def __init__(self, home: Path, database_url: str) -> None:
        self._home = home
        self._url = database_url
        self.nodes: list[Server] = []
        self.others: list[Process] = []

    def start(self) -> None:
        for number in range(NODES):
            self.nodes.append(
                Server(self._folder(f"node-{number}"), self._url, command="node", **self._name("node", number))
            )
        environment = {"ROTA_DATABASE_URL": self._url, "ROTA_LEASE": LEASE, **self._name("scheduler", 0)}
        scheduler = Process(self._folder("scheduler"), "scheduler", "--metrics-port", "0", **environment)
        self.others.append(scheduler)
        scheduler.wait_for_line("Data: ")
        servers = ",".join(node.url for node in self.nodes)
        for number in range(WORKERS):
            arguments = ("--server", servers, "--metrics-port", "0", "--worker-id", f"worker-{number}")
            worker = Process(self._folder(f"worker-{number}"), "worker", *arguments)
            self.others.append(worker)
            worker.wait_for_line("for work")

    async def stop(self) -> list[int]:
        """Asks everybody to end, workers first; their exit codes."""
        codes = []
        for process in (*reversed(self.others), *self.nodes):
            codes.append(await asyncio.to_thread(process.terminate))
        return codes

    def end(self) -> None:
        """Whatever happened: nothing of this stays."""
        for process in (*self.others, *self.nodes):
            if process.popen.poll() is None:
                process.kill()

    def read_faults(self) -> list[str]:
        """What the logs hold of errors that nobody expected."""
        processes = (*self.nodes, *self.others)
        lines = [line for process in processes for line in process.log if line.get("level") in ("error", "critical")]
        return [f"logged: {line.get('message')} {str(line.get('exception', ''))[-300:]}" for line in lines]

    def _folder(self, name: str) -> Path:
        folder = self._home / name
        folder.mkdir(parents=True)
        return folder

    @staticmethod
    def _name(kind: str, number: int) -> dict[str, str]:
        return {"ROTA_NODE_ID": f"{kind}-{number}", "ROTA_LEASE": LEASE}
