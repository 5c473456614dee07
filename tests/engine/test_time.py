"""Time over years and in trouble: what the engine fires equals the pure rules, whatever happens to nodes and clocks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from rota.domain.schedule import Overlap, parse_schedule
from rota.domain.schedule_plan import preview
from rota.domain.schedule_ticks import ScheduleTicks
from rota.engine import fire as fire_verb
from rota.store.schedules import find_schedule
from tests.engine.stage import START, Node, Stage, open_node, task

DAY = timedelta(days=1)
# Two years of each zone, around the days that are odd there; in the order of time.
ZONES = (
    ("Asia/Kathmandu", 1985),
    ("Pacific/Apia", 2011),
    ("America/Sao_Paulo", 2017),
    ("Africa/Casablanca", 2023),
    ("America/New_York", 2024),
    ("Antarctica/Troll", 2024),
    ("Australia/Lord_Howe", 2024),
    ("Europe/Riga", 2024),
)
# A fixed time that falls into gaps and overlaps, and a rhythm.
RULES: tuple[dict[str, Any], ...] = (
    {"schedule_cron": "30 2 * * *", "dst_overlap": "both"},
    {"schedule_cron": "15 */8 * * *"},
)


async def test_years_of_fires_are_those_of_the_pure_rules(stage: Stage):
    for zone, year in ZONES:
        begin = datetime(year, 1, 1, tzinfo=UTC)
        end = begin + timedelta(days=731)
        stage.clock.now = begin
        rules = [{**rule, "timezone": zone, "grace_seconds": 90 * 86_400} for rule in RULES]
        workflow_id = await stage.define(task("a"), name=zone.rpartition("/")[2], schedules=rules, max_active_runs=0)
        while stage.clock.now < end:
            stage.clock.now = min(end, stage.clock.now + 60 * DAY)
            while (await stage.engine.fire()).schedules:
                pass
        rows = await stage.runs_of(workflow_id)
        for schedule, rule in zip(await stage.schedule_rows(workflow_id), rules, strict=True):
            spec = parse_schedule(rule, now=None)
            expected = [fire.at for fire in preview(spec, seed="", anchor=begin, start=begin, count=4_000)]
            fired = [row.logical_date for row in rows if row.schedule_id == schedule.id]
            assert fired == [at for at in expected if begin < at <= end], (zone, rule)
        await stage.engine.set_active(await stage.find(zone.rpartition("/")[2]), is_active=False)


class Crashed(Exception):
    """The node died before it could commit."""


async def _fire(node: Node, chance: random.Random) -> None:
    """Fires on a node, which may die in the middle of it."""
    is_crash = chance.random() < 0.25

    async def work(transaction: Any) -> None:
        await fire_verb.fire(node.engine._core, transaction)
        if is_crash:
            raise Crashed

    with suppress(Crashed):
        await node.database.transact(work)


async def _check(stage: Stage, workflow_id: str, name: str) -> None:
    """Each tick up to the cursor was decided once: it has a run, or a decision says why not."""
    (row,) = await stage.schedule_rows(workflow_id)
    known = await stage.database.read(lambda tx: find_schedule(tx, row.id))
    assert known is not None
    spec = stage.engine._core.read_schedule(known)
    ticks = ScheduleTicks(spec, row.id, row.anchor_at)
    due = [tick.at for tick in ticks.take(START, row.cursor_at, 100_000, is_open=True)]
    decided: Counter[str] = Counter()
    for _old, word, details in await stage.history(row.id):
        decided[word] += details.get("count", 0)
    runs = [run.logical_date for run in await stage.runs_of(workflow_id)]
    assert len(set(runs)) == len(runs), name
    assert set(runs) <= set(due), name
    assert sum(decided.values()) == len(due), (name, decided)
    assert decided["fired"] + decided["buffered"] == len(runs), (name, decided)


@pytest.mark.parametrize("seed", range(3))
async def test_every_tick_is_decided_once_whatever_happens(database_url: str, stage: Stage, seed: int):
    """Several nodes fire at once, die and pause, while the database's clock jumps by up to five minutes, as it does
    when another server takes over; workers end runs meanwhile."""
    chance = random.Random(seed)
    flows: dict[str, str] = {}
    for overlap in get_args(Overlap):
        for misfire in ("skip", "latest", "all"):
            name = f"{overlap}-{misfire}"
            rule = {"interval_seconds": chance.choice([20, 45, 60]), "overlap": overlap, "misfire": misfire}
            rule |= {"grace_seconds": chance.choice([1, 60]), "catch_up_limit": 5}
            flows[name] = await stage.define(task("a"), name=name, schedules=[rule], max_active_runs=0)
    worker = await stage.register()
    async with AsyncExitStack() as stack:
        nodes = [stage.node, *[await stack.enter_async_context(open_node(database_url, stage.clock)) for _ in "ab"]]
        for _ in range(30):
            jump = chance.uniform(-300, 300) if chance.random() < 0.15 else 0.0
            stage.clock.advance(chance.uniform(1, 90) + jump)
            awake = [node for node in nodes if chance.random() < 0.8]
            await asyncio.gather(*(_fire(node, chance) for node in awake for _ in range(2)))
            worker = await stage.register()
            items = await stage.claim(worker)
            doomed = [item for item in items if chance.random() < 0.6]
            await stage.finish(worker, doomed)
            await stage.engine.leave(worker)
        stage.clock.advance(1_000)
        while (await stage.engine.fire()).schedules:
            pass
    for name, workflow_id in flows.items():
        await _check(stage, workflow_id, name)
    await stage.engine.reap_runs()
