"""Random verbs on several nodes at once: no deadlock, no broken invariant, and everything comes to its end.

`ROTA_INTERLEAVINGS=200000` runs for longer, `ROTA_SEED` repeats a run's choice of verbs.
"""

from __future__ import annotations

import os
import random
from contextlib import AsyncExitStack

import pytest
import structlog
from sqlalchemy import text

from rota.engine import expand
from tests.engine.stage import Clock, Stage, open_node, open_stage
from tests.engine.storm import Storm, delete_everything

INTERLEAVINGS = int(os.environ.get("ROTA_INTERLEAVINGS", "10000"))
AT_ONCE = 12
NODES = 4


async def test_ten_thousand_interleavings(database_url: str, monkeypatch: pytest.MonkeyPatch):
    # So that maps are created in several transactions.
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 4)
    seed = int(os.environ.get("ROTA_SEED") or random.randrange(2**32))
    clock = Clock()
    with structlog.testing.capture_logs() as logs:
        async with open_stage(database_url, clock) as stage, AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(open_node(database_url, clock)) for _ in range(NODES)]
            await _rage(Storm(stage, nodes, random.Random(seed)), seed)
            await delete_everything(stage)
    unlucky = [entry for entry in logs if entry["event"] == "database_retry"]
    assert not unlucky, f"seed {seed}: {unlucky[:5]}"
    assert await _count_deadlocks(database_url) == 0


async def _rage(storm: Storm, seed: int) -> None:
    await storm.prepare()
    met = rounds = 0
    while met < INTERLEAVINGS:
        met += await storm.strike(AT_ONCE)
        rounds += 1
        storm.stage.clock.advance(storm.chance.choice((0, 0.5, 5, 20)))
        if rounds % 25 == 0:
            faults = await storm.find_faults()
            assert not faults, f"seed {seed}, round {rounds}: {faults}"
    await storm.settle()
    faults = await storm.find_faults()
    assert not faults, f"seed {seed}, at the end: {faults}"


async def _count_deadlocks(database_url: str) -> int:
    """What the server says of this database, once the others have closed their connections."""
    if database_url.startswith("sqlite"):
        return 0
    async with open_node(database_url) as node:
        stage = Stage(database_url, Clock(), node)
        counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ((deadlocks,),) = await stage.rows(text(counted))
    return int(deadlocks)
