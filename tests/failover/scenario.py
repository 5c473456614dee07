"""Kill after kill under load, then calm and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from rota.settings.addresses import normalize_database_url
from rota.store import migrate
from tests.failover.fleet import Fleet
from tests.failover.load import Load
from tests.failover.verdict import count_open, judge
from tests.servers.patroni import PatroniCluster, wait_until

# Of work between two kills, besides what the cluster needs to be whole again.
CALM_SECONDS = 3.0
HEAL_SECONDS = 90.0
DRAIN_SECONDS = 90.0
Say = Callable[[str], None]


async def survive(cluster: PatroniCluster, home: Path, kills: int, say: Say) -> list[str]:
    """Kills the leader so many times; the faults that were found."""
    cluster.execute("CREATE DATABASE rota")
    url = normalize_database_url(cluster.url("rota"))
    await asyncio.to_thread(migrate.upgrade, url)
    fleet = Fleet(home, cluster.url("rota"))
    try:
        await asyncio.to_thread(fleet.start)
        load = Load([node.url for node in fleet.nodes])
        try:
            await load.define()
            working = asyncio.create_task(load.run())
            gaps = [await _kill_once(cluster, load, number, say) for number in range(1, kills + 1)]
            load.stop()
            await working
            faults = await _calm_down(load, url)
        finally:
            await load.close()
        faults += [f"exit codes {codes}" for codes in [await fleet.stop()] if any(codes)]
        faults += [*load.faults, *fleet.read_faults()]
        found, notes = await judge(url, load.acknowledged)
        for note in (*notes, f"{load.unanswered} requests were not acknowledged", _sum_up(gaps)):
            say(note)
        return faults + found
    finally:
        fleet.end()


async def _kill_once(cluster: PatroniCluster, load: Load, number: int, say: Say) -> float:
    """Time without service around the death of the leader."""
    healed = await asyncio.to_thread(wait_until, cluster.is_healthy, "the cluster", HEAL_SECONDS, cluster.show_logs)
    await _let_work(load)
    leader = await asyncio.to_thread(cluster.find_leader)
    assert leader is not None
    killed_at = time.monotonic()
    leader.kill_all()

    def is_served() -> bool:
        return any(moment > killed_at + 1.0 for moment in load.acknowledged.values())

    await asyncio.to_thread(wait_until, is_served, "a job that is acknowledged again", HEAL_SECONDS, cluster.show_logs)
    gap = load.find_gap(killed_at) or 0.0
    cluster.start_member(leader)
    say(f"kill {number}: {leader.name}, {healed:.1f} s after the one before had returned; {gap:.1f} s without service")
    return gap


async def _let_work(load: Load) -> None:
    """A few seconds of undisturbed work."""
    began_at = time.monotonic()
    count = len(load.acknowledged)

    def has_worked() -> bool:
        return time.monotonic() - began_at > CALM_SECONDS and len(load.acknowledged) > count

    await asyncio.to_thread(wait_until, has_worked, "work", HEAL_SECONDS)


async def _calm_down(load: Load, url: str) -> list[str]:
    """No more ticks and jobs: all that was begun comes to its end."""
    status, answer = await load.call("POST", "/workflows/ticker/pause")
    faults = [] if status == 200 else [f"pausing the ticker answered {status}: {answer}"]
    give_up_at = time.monotonic() + DRAIN_SECONDS
    while left := await count_open(url):
        if time.monotonic() > give_up_at:
            return [*faults, f"{left} runs have not ended after {DRAIN_SECONDS:.0f} s of calm"]
        await asyncio.sleep(0.2)
    return faults


def _sum_up(gaps: list[float]) -> str:
    ordered = sorted(gaps)
    median, most = ordered[len(ordered) // 2], ordered[-1]
    return f"time without service over {len(gaps)} kills: median {median:.1f} s, most {most:.1f} s"
