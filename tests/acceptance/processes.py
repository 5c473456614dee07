"""Real processes of Rota, and waiting for what they do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
START_SECONDS = 30.0
PAUSE = threading.Event()


def wait_until(condition: Callable[[], T], what: str, timeout_seconds: float = 30.0) -> T:
    """What `condition` returns as soon as that is true; fails after the time."""
    give_up_at = time.monotonic() + timeout_seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > give_up_at:
            raise AssertionError(f"waited {timeout_seconds:.0f} s in vain for {what}; last: {found!r}")
        PAUSE.wait(0.05)


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """Nothing of this machine's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROTA_", "DATABASE_URL", "XDG_"))}
    return {**kept, "HOME": str(home), "PYTHONWARNINGS": "default", **extra}


def run_rota(
    home: Path, *arguments: str, prefix: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "rota", *arguments],
        cwd=home,
        env=clean_environment(home, **environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Process:
    """A long-running command; its output goes to files in its folder."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        number = len(list(home.glob("process-*.out")))
        self._output = home / f"process-{number}.out"
        self._errors = home / f"process-{number}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "rota", *arguments],
                cwd=home,
                env=clean_environment(home, **environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log, a dictionary for each whole line."""
        lines = self._errors.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """The first line of its output that matches; fails if it ends before."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.output)
            assert found or self.popen.poll() is None, f"ended early: {self.errors}"
            return found

        return wait_until(look, f"{pattern!r} in the output", START_SECONDS) or re.Match()

    def terminate(self, timeout_seconds: float = 30.0) -> int:
        """Asks it to end; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(timeout_seconds)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(10)


class Server(Process):
    """`rota up`, or another command with an API, that has started."""

    def __init__(self, home: Path, database_url: str, *arguments: str, command: str = "up", **environment: str) -> None:
        given = {"ROTA_DATABASE_URL": database_url, "ROTA_LEASE": "3s", **environment}
        port = () if "--port" in arguments else ("--port", "0")
        super().__init__(home, command, *port, *arguments, **given)
        self.url = self.wait_for_line(r"listens on (https?://\S+)").group(1)
        self.port = self.url.rpartition(":")[2]

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **headers}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def get(self, path: str) -> Any:
        status, answer = self.request("GET", path)
        assert status == 200, answer
        return answer

    def define(self, *tasks: dict[str, Any], name: str = "flow", **fields: Any) -> None:
        status, answer = self.request("POST", "/workflows", {"name": name, "tasks": list(tasks), **fields})
        assert status == 201, answer

    def trigger(self, name: str = "flow") -> str:
        status, answer = self.request("POST", f"/workflows/{name}/trigger", {})
        assert status == 201, answer
        return str(answer["id"])

    def wait_for_run(self, run_id: str, status: str = "success", timeout_seconds: float = 30.0) -> dict[str, Any]:
        """The task runs by name, once the run is in this state."""

        def look() -> Any:
            run = self.get(f"/workflow-runs/{run_id}")
            assert run["status"] in ("pending", "running", status), run
            return run if run["status"] == status else None

        run = wait_until(look, f"run {run_id} to be {status}", timeout_seconds)
        return {row["task"]: row for row in run["task_runs"]}

    def read_log(self, task_run_id: str) -> str:
        return str(self.get(f"/task-runs/{task_run_id}/logs")["text"])
