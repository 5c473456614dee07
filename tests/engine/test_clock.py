"""A node whose clock is five minutes off changes nothing: on PostgreSQL the database's clock decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from sqlalchemy import select, text

from rota.domain.work import AttemptKey, Finished, Registration
from rota.engine.engine import Engine
from rota.engine.submit import RunRequest
from rota.store import database
from rota.store.tables import schedules, task_runs, workflow_runs
from rota.store.tables_service import workers
from tests.engine.invariants import find_faults
from tests.engine.stage import LEASE_SECONDS, Clock, Stage, open_node, task
from tests.servers.postgres import Address

SKEW_SECONDS = 300.0
skew: ContextVar[float] = ContextVar("skew", default=0.0)
_time, _time_ns = time.time, time.time_ns


class SkewedDatetime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(_time() + skew.get(), tz)


@pytest.fixture
def skewed_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every clock that a process can ask is off by `skew`, node by node."""
    monkeypatch.setattr(time, "time", lambda: _time() + skew.get())
    monkeypatch.setattr(time, "time_ns", lambda: _time_ns() + int(skew.get() * 1e9))
    monkeypatch.setattr(database, "datetime", SkewedDatetime)


class Skewed:
    """A node whose clock is off: what it is asked to do, it does at its own time."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        self.engine = engine
        self.seconds = seconds

    async def do(self, name: str, *arguments, **options):
        token = skew.set(self.seconds)
        try:
            return await getattr(self.engine, name)(*arguments, **options)
        finally:
            skew.reset(token)


@pytest.fixture
async def nodes(
    postgres: Address, postgres_template: str, skewed_clocks: None
) -> AsyncIterator[tuple[Stage, Skewed, Skewed]]:
    """A right node, a fast one and a slow one on a database with its own clock."""
    name = f"clock_{time.monotonic_ns()}"
    url = postgres.create_database(name, postgres_template)
    try:
        async with AsyncExitStack() as stack:
            right, fast, slow = [await stack.enter_async_context(open_node(url)) for _ in range(3)]
            yield Stage(url, Clock(), right), Skewed(fast.engine, SKEW_SECONDS), Skewed(slow.engine, -SKEW_SECONDS)
            assert not await find_faults(right.database)
    finally:
        postgres.drop_database(name)


async def _database_now(stage: Stage) -> datetime:
    ((now,),) = await stage.rows(text("SELECT clock_timestamp()"))
    return now


@pytest.mark.usefixtures("skewed_clocks")
def test_the_skew_is_felt():
    token = skew.set(SKEW_SECONDS)
    assert (
        abs((vars(database)["datetime"].now(UTC) - datetime.fromtimestamp(_time(), UTC)).total_seconds() - SKEW_SECONDS)
        < 5
    )
    assert time.time_ns() - _time_ns() > 290e9
    skew.reset(token)


async def test_every_instant_is_the_databases(nodes: tuple[Stage, Skewed, Skewed]):
    stage, fast, slow = nodes
    before = await _database_now(stage)
    workflow_id = await stage.define(
        task("a", retry_count=1, retry_delay_seconds=60),
        schedule_cron="* * * * *",
        max_active_runs=0,
        run_timeout_seconds=60,
    )
    for node in (fast, slow):
        worker = (await node.do("register", Registration())).identity
        await node.do("submit", RunRequest(workflow_id))
        (item,) = await node.do("claim", worker, limit=1)
        await node.do("renew", worker, [AttemptKey(item.task_run_id, 1)])
        await node.do("report", worker, [Finished(item.task_run_id, 1, "failed", error_type="exit_code")])
    after = await _database_now(stage)
    for row in await stage.rows(select(workflow_runs)):
        assert before <= row.created_at <= after
        assert before <= row.logical_date <= after
        assert before + timedelta(seconds=60) <= row.deadline_at <= after + timedelta(seconds=60)
    for row in await stage.rows(select(task_runs)):
        assert row.status == "retrying"
        assert before + timedelta(seconds=60) <= row.due_at <= after + timedelta(seconds=60)
        assert before.timestamp() * 1000 - 1 <= row.claim_rank <= after.timestamp() * 1000
    for row in await stage.rows(select(workers)):
        assert before + timedelta(seconds=LEASE_SECONDS) <= row.lease_expires_at
        assert row.lease_expires_at <= after + timedelta(seconds=LEASE_SECONDS)
    for row in await stage.rows(select(schedules)):
        assert before <= row.cursor_at <= after


async def test_a_fast_node_takes_nothing_too_early(nodes: tuple[Stage, Skewed, Skewed]):
    stage, fast, _slow = nodes
    workflow_id = await stage.define(
        task("a", retry_count=1, retry_delay_seconds=60),
        task("b"),
        schedule_cron="0 0 1 1 *",
        run_timeout_seconds=60,
    )
    run_id = await stage.submit(workflow_id)
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["a"]], "failed")
    for duty in ("fire", "release_due", "reap_attempts", "reap_workers", "reap_runs"):
        await fast.do(duty)
    assert await fast.do("prune", 60.0) == 0
    assert await stage.statuses(run_id) == {"a": "retrying", "b": "running"}
    assert (await stage.engine.renew(worker, [AttemptKey(items["b"].task_run_id, 1)])).lost == ()
    # A minute is over for everyone at the same moment.
    await _let_pass(stage, 61)
    assert await fast.do("release_due") == 1


async def test_a_slow_node_takes_nothing_too_late(nodes: tuple[Stage, Skewed, Skewed]):
    stage, _fast, slow = nodes
    await stage.define(task("a", retry_count=1, retry_delay_seconds=60), task("b"), schedule_cron="* * * * *")
    await stage.submit((await stage.find()).id)
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["a"]], "failed")
    await _let_pass(stage, 61)
    assert (await slow.do("fire")).runs == 1
    assert await slow.do("release_due") == 1
    assert await slow.do("reap_attempts") == 1
    assert await slow.do("reap_workers") == 1


async def _let_pass(stage: Stage, seconds: float) -> None:
    """The database's clock cannot be turned, so everything that lies ahead is brought nearer."""
    for name, columns in (
        ("task_runs", ("due_at", "lease_expires_at")),
        ("workers", ("lease_expires_at",)),
        ("schedules", ("cursor_at", "next_due_at")),
    ):
        for column in columns:
            earlier = f"{column} - interval '{seconds} seconds'"
            await stage.execute(text(f"UPDATE {name} SET {column} = {earlier} WHERE {column} IS NOT NULL"))


async def test_turns_and_queues_go_by_the_databases_clock(nodes: tuple[Stage, Skewed, Skewed]):
    stage, fast, slow = nodes
    workflow_id = await stage.define(task("a"), max_active_runs=1)
    runs = [(await node.do("submit", RunRequest(workflow_id))).id for node in (fast, slow, fast, slow)]
    runs.append(await stage.submit(workflow_id))
    worker = await stage.register()
    taken = []
    for _ in runs:
        (item,) = await stage.claim(worker)
        taken.append(item.run_id)
        await stage.finish(worker, [item])
    assert taken == runs
    free = await stage.define(task("a"), name="free", max_active_runs=0)
    runs = []
    for node in (fast, slow, fast, slow):
        runs.append((await node.do("submit", RunRequest(free))).id)
        await _next_millisecond(stage)
    assert [(await stage.claim(worker, 1))[0].run_id for _ in runs] == runs


async def _next_millisecond(stage: Stage) -> None:
    """Ranks are milliseconds: two of the same one have no order."""
    start = await _database_now(stage)
    while (await _database_now(stage)) - start < timedelta(milliseconds=1):
        pass


async def test_nodes_that_disagree_fire_each_tick_once(nodes: tuple[Stage, Skewed, Skewed]):
    stage, fast, slow = nodes
    ids = [
        await stage.define(task("a"), name=f"flow{n}", schedule_cron="* * * * *", max_active_runs=0) for n in range(5)
    ]
    for minute in range(1, 4):
        await _let_pass(stage, 60)
        await asyncio.gather(fast.do("fire"), slow.do("fire"), fast.do("fire"), slow.do("fire"))
        await slow.do("fire")
        for workflow_id in ids:
            dates = [row.logical_date for row in await stage.runs_of(workflow_id)]
            assert len(dates) == len(set(dates)) <= minute
            assert max(dates) <= await _database_now(stage)
