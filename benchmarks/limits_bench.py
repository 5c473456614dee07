"""Claims among many namespaces and pools, one of them full, with very much waiting: how long they take, how fair."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import text

from benchmarks.measure import Measure, percentile
from benchmarks.stage import Place, Stage, open_stage, succeed
from rota.domain.spec_parse import parse_workflow
from rota.engine.engine import RunRequest
from rota.store import pools
from rota.store.database import Transaction
from rota.store.tables import task_runs, workflow_runs

NAMESPACES = 1_000
POOLS = 100
# So many claims go by before what they gave is reported: pools fill and empty.
CLAIMS_PER_REPORT = 50


async def measure_limits(place: Place, *, waiting: int, claims: int) -> list[Measure]:
    """Every namespace has work without a limit; every tenth one also in a pool; one pool is full."""
    async with open_stage(place) as stage:
        namespaces = await _define(stage)
        await _fill(stage, waiting)
        times, served = await _claim(stage, claims, namespaces)
    mean = sum(served.values()) / NAMESPACES
    worst = max(abs(served[f"n{number}"] - mean) for number in range(NAMESPACES)) / mean
    about = f"{POOLS} pools, {NAMESPACES} namespaces, {waiting} waiting"
    return [
        Measure(f"{place.kind}: claim among {about}, p50", percentile(times, 0.5), "ms", is_less_better=True),
        Measure(f"{place.kind}: claim among {about}, p99", percentile(times, 0.99), "ms", 15, is_less_better=True),
        Measure(f"{place.kind}: largest unfairness over {claims} claims", worst * 100, "%", 5, is_less_better=True),
    ]


async def _define(stage: Stage) -> dict[str, str]:
    """One run of each workflow, to be multiplied; their namespaces, by what the runs' copies have in common."""
    step = NAMESPACES // POOLS
    requests = []
    for number in range(NAMESPACES):
        namespace = f"n{number}"
        tasks = [{"name": "free", "command": "true"}]
        if number % step == 0:
            # The first pool is full as soon as one task run is at work.
            slots = 1 if number == 0 else 100
            await stage.database.transact(
                lambda tx, slots=slots, namespace=namespace: pools.put_pool(
                    tx, namespace, "gpu", slots=slots, description=""
                )
            )
            tasks.append({"name": "pooled", "command": "true", "pool": "gpu"})
        document = {"name": "flow", "namespace": namespace, "max_active_runs": 0, "tasks": tasks}
        defined = await stage.engine.create_workflow(parse_workflow(document, now=datetime.now(UTC)))
        requests.append(RunRequest(defined.id))
    runs = await stage.engine.submit_many(requests)
    return {_find_origin(str(run.id)): f"n{number}" for number, run in enumerate(runs)}


def _find_origin(run_id: str) -> str:
    return run_id[:14] + run_id[15:24] + run_id[30:]


async def _fill(stage: Stage, waiting: int) -> None:
    """Copies of every run with its task runs, made inside the database, until so many task runs wait."""
    copies = waiting // (NAMESPACES + POOLS)
    is_sqlite = stage.database.is_sqlite
    numbers = (
        "n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :copies)"
        if is_sqlite
        else "n AS (SELECT generate_series(1, :copies) AS i)"
    )

    def new_id(column: str) -> str:
        # The rest of the template's id is random enough to tell it from the others, and its version from its copies.
        shown = column if is_sqlite else f"CAST({column} AS text)"
        number = "printf('%06x', n.i)" if is_sqlite else "lpad(to_hex(n.i), 6, '0')"
        made = f"substr({shown}, 1, 14) || '8' || substr({shown}, 16, 9) || {number} || substr({shown}, 31, 6)"
        return made if is_sqlite else f"CAST({made} AS uuid)"

    async def copy(transaction: Transaction) -> None:
        for table, owned in ((workflow_runs, {"id"}), (task_runs, {"id", "run_id"})):
            names = [column.name for column in table.columns]
            values = ", ".join(new_id(f"t.{name}") if name in owned else f"t.{name}" for name in names)
            await transaction.run(
                text(
                    f"INSERT INTO {table.name} ({', '.join(names)}) "
                    f"WITH {'RECURSIVE ' if is_sqlite else ''}{numbers} "
                    f"SELECT {values} FROM {table.name} t CROSS JOIN n"
                ),
                {"copies": copies},
            )

    await stage.database.transact(copy)


async def _claim(stage: Stage, claims: int, namespaces: Mapping[str, str]) -> tuple[list[float], Counter[str]]:
    times: list[float] = []
    served: Counter[str] = Counter()
    held = []
    for number in range(claims):
        begun = time.perf_counter()
        given = await stage.engine.claim(stage.worker, limit=1)
        times.append((time.perf_counter() - begun) * 1000)
        served.update(namespaces[_find_origin(item.run_id)] for item in given)
        held += given
        if number % CLAIMS_PER_REPORT == 0:
            await stage.engine.report(stage.worker, succeed(held))
            held = []
    return times, served
