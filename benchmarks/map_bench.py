"""Mapped tasks against the same tasks written out: one, then many, then one that waits for all."""

from __future__ import annotations

import asyncio
import time

from benchmarks.measure import Measure
from benchmarks.stage import Place, Stage, open_stage, pump
from rota.domain.work import Finished
from rota.engine.engine import RunRequest

ROUNDS = 4


async def measure_map(place: Place, *, width: int) -> list[Measure]:
    """From the request to the end of the run, with two pumps as workers and a loop as scheduler."""
    async with open_stage(place) as stage:
        names = [f"t{number}" for number in range(width)]
        fixed = [
            {"name": "list", "python": "tasks:list"},
            *({"name": name, "python": "tasks:nothing", "depends_on": ["list"]} for name in names[2:]),
            {"name": "last", "python": "tasks:nothing", "depends_on": names[2:]},
        ]
        mapped = [
            {"name": "list", "python": "tasks:list"},
            {
                **{"name": "each", "python": "tasks:nothing", "args": {"item": "{{ item }}"}, "depends_on": ["list"]},
                **{"map_over": "tasks.list.output", "map_limit": width},
            },
            {"name": "last", "python": "tasks:nothing", "depends_on": ["each"]},
        ]
        workflows = {
            "fixed": await stage.define("fixed", fixed),
            "mapped": await stage.define("mapped", mapped),
        }
        times: dict[str, list[float]] = {"fixed": [], "mapped": []}
        # By turns, because the machine may have other work meanwhile. The first time definitions are read, too.
        for _ in range(ROUNDS):
            for name, workflow_id in workflows.items():
                times[name].append(await _time_run(stage, workflow_id, width - 2))
        seconds = {name: min(found) for name, found in times.items()}
    return [
        Measure(f"{place.kind}: fan-out of {width} tasks, from request to end", seconds["fixed"], "s"),
        Measure(f"{place.kind}: map over {width} items, from request to end", seconds["mapped"], "s"),
        Measure(
            f"{place.kind}: map against the same fan-out",
            seconds["mapped"] / seconds["fixed"],
            "times",
            1.3,
            is_less_better=True,
        ),
    ]


async def _time_run(stage: Stage, workflow_id: str, items: int) -> float:
    start = time.perf_counter()
    await stage.engine.submit(RunRequest(workflow_id))
    (first,) = await stage.engine.claim(stage.worker, limit=1)
    listed = Finished(first.task_run_id, first.attempt, "success", output=list(range(items)))
    await stage.engine.report(stage.worker, [listed])
    total = 1
    while total < items + 2:
        done = await asyncio.gather(pump(stage, 200), pump(stage, 200), stage.engine.expand_maps())
        total += done[0] + done[1]
        if not any(done):
            raise RuntimeError(f"{total} of {items + 2} task runs were completed, and nothing is left")
    return time.perf_counter() - start
