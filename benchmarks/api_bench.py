"""One API process, as clients see it over HTTP."""

from __future__ import annotations

import json
import statistics

from benchmarks.load import Outcome, make_request, send
from benchmarks.measure import Measure, percentile
from benchmarks.processes import run_server
from benchmarks.stage import Place, open_stage

CONNECTIONS = 32
BULK = 1000


async def measure_api(place: Place, *, count: int) -> list[Measure]:
    """Jobs one by one and in bulk, and single runs read back."""
    async with open_stage(place) as stage, run_server(stage.url) as port:
        await send(port, [_make_job(number) for number in range(200)], connections=CONNECTIONS, expected=201)
        ids: list[str] = []
        created = await send(
            port,
            [_make_job(number) for number in range(count)],
            connections=CONNECTIONS,
            expected=201,
            keep=lambda body: ids.append(json.loads(body)["run_id"]),
        )
        bulk = await send(port, [_make_bulk(part) for part in range(count // 200)], connections=4, expected=201)
        reads = [make_request("GET", f"/api/v1/workflow-runs/{run_id}") for run_id in ids]
        read = await send(port, reads, connections=CONNECTIONS)
    return [
        *_tell(f"{place.kind}: POST /jobs, 32 connections", created, rate=1_000, p99=100),
        Measure(f"{place.kind}: POST /jobs/bulk, {BULK} a call", bulk.rate * BULK, "jobs/s", 20_000),
        *_tell(f"{place.kind}: GET /workflow-runs/{{id}}, 32 connections", read, rate=2_000),
    ]


def _make_job(number: int) -> bytes:
    return make_request("POST", "/api/v1/jobs", json.dumps({"name": f"job-{number}", "command": "true"}).encode())


def _make_bulk(part: int) -> bytes:
    jobs = [{"name": f"bulk-{part}-{number}", "command": f"echo {number}"} for number in range(BULK)]
    return make_request("POST", "/api/v1/jobs/bulk", json.dumps({"jobs": jobs}).encode())


def _tell(name: str, outcome: Outcome, *, rate: float, p99: float | None = None) -> list[Measure]:
    return [
        Measure(name, outcome.rate, "/s", rate),
        Measure(f"{name}, p50", statistics.median(outcome.waits), "ms", is_less_better=True),
        Measure(f"{name}, p99", percentile(outcome.waits, 0.99), "ms", p99, is_less_better=True),
    ]
