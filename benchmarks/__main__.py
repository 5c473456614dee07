"""`make bench`: measures, prints a table, keeps the figures as JSON, and fails if a target is missed (`--strict`)."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from benchmarks import (
    api_bench,
    engine_bench,
    event_bench,
    limits_bench,
    machine,
    map_bench,
    remote_bench,
    schedule_bench,
    worker_bench,
)
from benchmarks.measure import Measure
from benchmarks.stage import Place, open_place

RESULTS = Path(__file__).parent / "results"
Scenario = Callable[[Place, bool], Awaitable[list[Measure]]]

SCENARIOS: dict[str, Scenario] = {
    "throughput": lambda place, quick: engine_bench.measure_creation_and_throughput(
        place, count=4_000 if quick else 40_000
    ),
    "chain": lambda place, quick: engine_bench.measure_chain(place, length=50 if quick else 500),
    "fan": lambda place, quick: engine_bench.measure_fan(place, width=1_000 if quick else 10_000),
    "nest": lambda place, quick: engine_bench.measure_nest(place, levels=20, rounds=5 if quick else 50),
    "map": lambda place, quick: map_bench.measure_map(place, width=1_000 if quick else 10_000),
    "python": lambda place, quick: worker_bench.measure_python(place, count=2_000 if quick else 40_000),
    "shell": lambda place, quick: worker_bench.measure_shell(place, count=500 if quick else 4_000),
    "http": lambda place, quick: worker_bench.measure_http(place, count=1_000 if quick else 10_000),
    "latency": lambda place, quick: worker_bench.measure_latency(place, count=20 if quick else 300),
    "remote": lambda place, quick: remote_bench.measure_remote(place, count=2_000 if quick else 20_000),
    "memory": lambda place, quick: remote_bench.measure_memory(
        place, sleepers=100 if quick else 1_000, megabytes=64 if quick else 1_024
    ),
    "lost": lambda place, _quick: remote_bench.measure_lost_worker(place),
    "events": lambda place, quick: event_bench.measure_events(
        place, seconds=3 if quick else 20, stored=10_000 if quick else 100_000
    ),
    "api": lambda place, quick: api_bench.measure_api(place, count=1_000 if quick else 10_000),
    "schedules": lambda place, quick: measure_schedules(place, is_quick=quick),
    "limits": lambda place, quick: limits_bench.measure_limits(
        place, waiting=50_000 if quick else 1_000_000, claims=1_000 if quick else 10_000
    ),
    "flat": lambda place, quick: engine_bench.measure_flatness(
        place, finished=10_000 if quick else 1_000_000, waiting=2_000 if quick else 100_000
    ),
}


async def measure_schedules(place: Place, *, is_quick: bool) -> list[Measure]:
    """Everything about schedules."""
    ticks: dict[int, schedule_bench.Target] = {1: (4, None, 15), 1_000: (8, None, 150)}
    if not is_quick:
        ticks[10_000] = (40, 300, 1_000)
    found = await schedule_bench.measure_lateness(place, counts=ticks)
    found += await schedule_bench.measure_idle(
        place, count=1_000 if is_quick else 10_000, seconds=5 if is_quick else 30
    )
    return found + await schedule_bench.measure_stored(place, few=1_000, many=10_000 if is_quick else 1_000_000)


def main() -> int:
    options = parse(sys.argv[1:])
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    measures = [machine.measure_python(), machine.measure_sync(), machine.measure_sqlite()]
    measures.append(asyncio.run(machine.measure_spawning()))
    show(measures)
    for kind in options.database:
        with open_place(kind) as place:
            for name in options.only or SCENARIOS:
                found = asyncio.run(SCENARIOS[name](place, options.quick))
                show(found)
                measures += found
    keep(measures, options.output)
    missed = [measure.name for measure in measures if measure.is_reached is False]
    if missed:
        print(f"\nmissed: {'; '.join(missed)}")
    return 1 if missed and options.strict else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=sorted(SCENARIOS), help="these scenarios instead of all")
    parser.add_argument("--database", nargs="*", choices=("sqlite", "postgres"), default=("sqlite", "postgres"))
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work at all?")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--output", type=Path, help="where to write the JSON (default: benchmarks/results)")
    return parser.parse_args(arguments)


def show(measures: Sequence[Measure]) -> None:
    for measure in measures:
        mark = {True: "reached", False: "MISSED", None: ""}[measure.is_reached]
        sign = "≤" if measure.is_less_better else "≥"
        target = "" if measure.target is None else f"{sign} {measure.target:,g}"
        print(f"{measure.name:88} {measure.value:>12,.2f} {measure.unit:12} {target:>10} {mark}", flush=True)


def keep(measures: Sequence[Measure], output: Path | None) -> None:
    path = output or RESULTS / f"{time.strftime('%Y-%m-%dT%H%M%SZ', time.gmtime())}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "measures": [
            {
                "name": measure.name,
                "value": round(measure.value, 4),
                "unit": measure.unit,
                "target": measure.target,
                "is_reached": measure.is_reached,
            }
            for measure in measures
        ],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    print(f"\nkept in {path}")


if __name__ == "__main__":
    sys.exit(main())
