"""Work of many kinds, submitted without pause; each execution leaves a trace in a file of its task's own."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp

from tests.chaos.fleet import EFFECTS
from tests.chaos.report import Report

POOL = "narrow"
POOL_SLOTS = 5
# Losses are no fault of the work's: most kinds may be lost often.
PATIENT = {"max_deliveries": 30}
ANSWER_SECONDS = 5.0
BROKEN, LATE = 0, -1
# What a storm may do to a request.
MISSING = {BROKEN: "no connection", LATE: f"no answer within {ANSWER_SECONDS:.0f} s", 503: "503"}


def _traced(body: str) -> str:
    """A command that writes down each start, does its work and writes down that it has."""
    effect = f'"${EFFECTS}/$ROTA_IDEMPOTENCY_KEY"'
    return f'echo "start $ROTA_ATTEMPT" >> {effect}; {body}; echo "end $ROTA_ATTEMPT" >> {effect}'


def _task(name: str, body: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": _traced(body), **PATIENT, **fields}


FLAKY = f'[ $(grep -c start "${EFFECTS}/$ROTA_IDEMPOTENCY_KEY") -ge 3 ] || exit 7'
# The grandchild has left its session and forgotten its parent; it must not outlive its task.
TREE = "(setsid sh -c 'sleep 600 & sleep 600' &); sleep 0.5"
STUBBORN = "trap '' TERM; (setsid sh -c 'sleep 600 & sleep 600' &); sleep 1"


def _function(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "python": "chaos_tasks:work", "args": arguments, **PATIENT}


WORKFLOWS: dict[str, list[dict[str, Any]]] = {
    "quick": [_task("quick", "true")],
    "sleepy": [_task(f"sleep-{seconds}", f"sleep {seconds}") for seconds in (1, 2, 3)],
    "flaky": [_task("flaky", FLAKY, retry_count=4, retry_delay_seconds=0.3)],
    "doomed": [
        _task("doomed", "exit 3", retry_count=1, retry_delay_seconds=0.1),
        _task("never", "true", depends_on=["doomed"]),
    ],
    "tree": [_task("tree", TREE), _task("stubborn", STUBBORN)],
    "chain": [
        _task(f"link-{number}", "true", depends_on=[f"link-{number - 1}"] if number else []) for number in range(5)
    ],
    "fan": [
        _task("split", "true"),
        *(
            _task(f"part-{number}", "sleep 0.2", depends_on=["split"], pool=POOL, pool_slots=1 + number % 2)
            for number in range(6)
        ),
        _task("join", "true", depends_on=[f"part-{number}" for number in range(6)]),
    ],
    "python": [
        _function("function"),
        _function("slow-function", seconds=1.0),
        _function("function-tree", seconds=0.3, is_tree=True),
    ],
    # The usual budget for lost work: here it may run out.
    "impatient": [_task("impatient", "sleep 1", max_deliveries=3)],
}


class Load:
    """Submits and cancels through the HTTP API, and remembers what the server has acknowledged."""

    def __init__(self, url: str, report: Report, randomness: random.Random) -> None:
        self.acknowledged: list[str] = []
        self.cancelled: list[str] = []
        self._url = url
        self._report = report
        self._random = randomness
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))

    async def close(self) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of the answer; BROKEN or LATE instead of a status if there is none."""
        try:
            async with self._session.request(method, self._url + path, json=body) as answer:
                return answer.status, await answer.json(content_type=None)
        except TimeoutError:
            return LATE, None
        except (aiohttp.ClientError, OSError, ValueError):
            return BROKEN, None

    async def define(self) -> None:
        status, answer = await self.call("PUT", f"/pools/{POOL}", {"slots": POOL_SLOTS})
        assert status == 201, answer
        for name, tasks in WORKFLOWS.items():
            status, answer = await self.call("POST", "/workflows", {"name": name, "tasks": tasks})
            assert status == 201, answer

    async def run(self, runs_per_second: float) -> None:
        """Submits until cancelled."""
        while True:
            await self._submit(self._random.choice(list(WORKFLOWS)))
            if self.acknowledged and self._random.random() < 0.1:
                await self._cancel(self._random.choice(self.acknowledged[-20:]))
            await asyncio.sleep(self._random.expovariate(runs_per_second))

    async def _submit(self, name: str) -> None:
        status, answer = await self.call("POST", f"/workflows/{name}/trigger", {})
        self._tell("runs submitted", status, {201})
        if status == 201:
            self.acknowledged.append(answer["id"])

    async def _cancel(self, run_id: str) -> None:
        status, _ = await self.call("POST", f"/workflow-runs/{run_id}/cancel", {"reason": "chaos"})
        self._tell("cancels", status, {200, 409})
        if status == 200:
            self.cancelled.append(run_id)

    def _tell(self, what: str, status: int, expected: set[int]) -> None:
        if status in expected:
            self._report.count(f"{what}: {status}")
        elif status in MISSING:
            self._report.count(f"{what}: {MISSING[status]}")
        else:
            self._report.count(f"{what}: {status}")
            self._report.faults.append(f"{what}: answered {status}")

    async def count_open(self) -> int | None:
        """How many runs (up to 500) have not ended; None if the server does not say."""
        status, answer = await self.call("GET", "/workflow-runs?status=pending&status=running&limit=500")
        return len(answer["items"]) if status == 200 else None


def read_effects(folder: Path) -> dict[str, list[str]]:
    """What the executions of each task have written down, by idempotency key."""
    return {file.name: file.read_text().splitlines() for file in folder.iterdir()}
