"""Who leads, for how long, and what a leader that has been replaced can still do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.cluster.member import FORGET_SECONDS, Member, MemberOptions
from rota.domain.errors import NOT_LEADER, Conflict
from rota.domain.work import Registration
from rota.engine.engine import Engine
from rota.scheduler.duties import build_housekeeping
from rota.store import leases, nodes
from rota.store.database import Database, DatabaseOptions
from rota.store.leases import LEADER
from rota.store.wakeups import Topic
from tests.scheduler.conftest import START


async def _read_lease(cluster):
    return await cluster.database.read(lambda tx: leases.read_lease(tx, LEADER))


async def _list(cluster, **options):
    rows = await cluster.database.read(lambda tx: nodes.list_nodes(tx, lost_after_seconds=6.0, **options))
    return {row.name: row.status for row in rows}


async def test_the_first_leads_and_the_others_follow(cluster):
    first, second = cluster.make("a"), cluster.make("b")
    await first.run_once()
    await second.run_once()
    assert (first.role, first.term) == ("leader", 1)
    assert (second.role, second.term) == ("follower", None)
    assert await _list(cluster) == {"a": "active", "b": "active"}


async def test_a_renewed_lease_keeps_its_term(cluster):
    first, second = cluster.make("a"), cluster.make("b")
    for _ in range(5):
        await first.run_once()
        cluster.clock.move(seconds=5)
        await second.run_once()
    assert first.term == 1
    assert not second.is_leader


async def test_a_silent_leader_is_replaced_in_a_new_term(cluster):
    first, second = cluster.make("a"), cluster.make("b")
    await first.run_once()
    cluster.clock.move(seconds=6)
    await second.run_once()
    assert second.term == 2
    await first.run_once()
    assert not first.is_leader
    assert (await _read_lease(cluster)).holder == second.node_id


async def test_a_lease_that_ran_out_is_taken_again_in_a_new_term(cluster):
    only = cluster.make()
    await only.run_once()
    cluster.clock.move(seconds=60)
    await only.run_once()
    assert only.term == 2


async def test_a_node_without_a_scheduler_never_leads(cluster):
    api = cluster.make("api", roles=("api",))
    await api.run_once()
    assert api.role == "follower"
    assert await _read_lease(cluster) is None


async def test_many_at_once_make_one_leader(cluster):
    members = [cluster.make(f"n{number}") for number in range(8)]
    for term in range(1, 4):
        await asyncio.gather(*(member.run_once() for member in members))
        assert [member.term for member in members if member.is_leader] == [term]
        cluster.clock.move(seconds=7)


async def test_a_transaction_of_an_older_term_is_refused(cluster):
    first, second = cluster.make("a"), cluster.make("b")
    await first.run_once()
    cluster.clock.move(seconds=6)
    await second.run_once()
    # It has not noticed yet.
    assert first.is_leader
    fenced = cluster.database.fenced(first.check_term)
    with pytest.raises(Conflict) as refusal:
        await fenced.transact(lambda tx: nodes.forget_silent(tx, -1.0))
    assert refusal.value.code == NOT_LEADER
    assert await _list(cluster) == {"a": "active", "b": "active"}
    await cluster.database.fenced(second.check_term).transact(lambda tx: nodes.forget_silent(tx, -1.0))
    assert await _list(cluster) == {}


async def test_nobody_takes_over_while_the_leader_is_in_a_transaction(cluster):
    if cluster.database.is_sqlite:
        pytest.skip("one writer at a time")
    first, second = cluster.make("a"), cluster.make("b")
    await first.run_once()

    async def keep_house(transaction):
        cluster.clock.move(seconds=60)
        await second.run_once()
        assert not second.is_leader

    await cluster.database.fenced(first.check_term).transact(keep_house)
    await second.run_once()
    assert second.term == 2


async def test_only_the_leader_keeps_house(cluster):
    engine = Engine(cluster.database)
    first, second = cluster.make("a"), cluster.make("b")
    await first.run_once()
    await second.run_once()
    registered = await engine.register(Registration(name="w"))
    await engine.leave(registered.identity)
    cluster.clock.move(days=1)
    await first.run_once()
    (kept,) = build_housekeeping(engine, second, retention_seconds=3600.0)
    assert await kept.run_once() == 0
    (led,) = build_housekeeping(engine, first, retention_seconds=3600.0)
    cluster.clock.move(minutes=1)
    # The lease has run out meanwhile: the round is refused, and says so calmly.
    assert await led.run_once() == 0
    await first.run_once()
    assert await led.run_once() == 1


async def test_who_was_silent_for_long_is_forgotten(cluster):
    first, second = cluster.make("a"), cluster.make("b")
    await first.run_once()
    cluster.clock.move(seconds=7)
    await second.run_once()
    assert await _list(cluster) == {"a": "lost", "b": "active"}
    cluster.clock.move(seconds=FORGET_SECONDS)
    await second.run_once()
    assert await _list(cluster) == {"b": "active"}
    await first.run_once()
    assert await _list(cluster) == {"a": "active", "b": "active"}


@asynccontextmanager
async def _running(*members):
    async with asyncio.timeout(30):
        tasks = [asyncio.create_task(member.run()) for member in members]
        try:
            yield tasks
        finally:
            for member in members:
                member.stop()
            await asyncio.gather(*tasks)


async def _wait_for_leader(database, holder):
    while True:
        seen = database.wakeups.count(Topic.CLUSTER)
        lease = await database.read(lambda tx: leases.read_lease(tx, LEADER))
        if lease is not None and lease.is_live and lease.holder == holder:
            return lease
        await database.wakeups.wait(Topic.CLUSTER, seen, 10)


async def test_a_leader_that_stops_hands_over_at_once(database_url):
    """Only a wake-up can be that quick: nobody looks by himself for an hour."""
    databases = [Database(DatabaseOptions(database_url)) for _ in range(1 if database_url.startswith("sqlite") else 2)]
    for database in databases:
        await database.open()
    slow = MemberOptions("a", roles=("scheduler",), heartbeat_seconds=3600.0, lease_seconds=9000.0)
    first, second = Member(databases[0], slow), Member(databases[-1], replace(slow, name="b"))
    try:
        async with _running(first) as (task,):
            await _wait_for_leader(databases[0], first.node_id)
            async with _running(second):
                await second.run_once()
                first.stop()
                await task
                assert not first.is_leader
                lease = await _wait_for_leader(databases[-1], second.node_id)
                assert lease.term == 2
    finally:
        for database in databases:
            await database.close()


async def test_a_leader_without_a_database_stops_leading_by_itself(cluster):
    member = cluster.make()
    member.options = MemberOptions("a", roles=("scheduler",), lease_seconds=0.05)
    await member.run_once()
    async with asyncio.timeout(10):
        while member.is_leader:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert member.term is None


async def test_the_clock_of_a_node_has_no_say(cluster):
    """The time in the database is the cluster's; a member only measures how long its own answers took."""
    member = cluster.make()
    cluster.clock.now = START + timedelta(minutes=5)
    await member.run_once()
    lease = await _read_lease(cluster)
    assert lease.expires_at == START + timedelta(minutes=5, seconds=member.options.lease_seconds)
    assert member.is_leader
