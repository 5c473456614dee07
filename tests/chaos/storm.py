"""Disturbances at random, one seed for all of them; afterwards everything is made well again."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from tests.chaos.fleet import LEASE_SECONDS, Fleet, WorkerSeat
from tests.chaos.report import Report

Disturbance = Callable[[], Awaitable[None]]


class Storm:
    """Kills, stops and cuts off; each worker and the server suffer one thing at a time."""

    def __init__(self, fleet: Fleet, report: Report, randomness: random.Random) -> None:
        self._fleet = fleet
        self._report = report
        self._random = randomness
        self._under_way: set[asyncio.Task[None]] = set()
        self._on_worker = {
            "kill": self._kill_worker,
            "pause": self._pause_worker,
            "cut": self._cut_network,
            "silence": self._silence_network,
        }
        self._on_server = {"server kill": self._kill_server, "server pause": self._pause_server}
        if not fleet.is_sqlite:
            # Where the scheduler is a process of its own.
            self._on_server["scheduler kill"] = self._kill_scheduler

    async def rage(self, seconds: float) -> None:
        """Disturbs for that long and until there was every kind, and returns when all is well again."""
        loop = asyncio.get_running_loop()
        end_at = loop.time() + seconds
        kinds = [*self._on_server, *self._on_worker]
        missing = set(kinds)
        while loop.time() < end_at or missing:
            kind = self._random.choice(sorted(missing) or kinds)
            if self._begin(kind):
                missing.discard(kind)
            await asyncio.sleep(self._random.uniform(0.2, 2.0))
        await asyncio.gather(*self._under_way)

    def _begin(self, kind: str) -> bool:
        """Starts a disturbance; False if all whom it could hit suffer already."""
        if kind in self._on_server:
            if self._fleet.is_server_busy:
                return False
            work = self._disturb_server(self._on_server[kind])
        else:
            free = [seat for seat in self._fleet.seats if not seat.is_busy]
            if not free:
                return False
            work = self._disturb(self._on_worker[kind], self._random.choice(free))
        self._under_way.add(asyncio.create_task(work))
        return True

    async def _disturb_server(self, disturb: Callable[[], Awaitable[None]]) -> None:
        self._fleet.is_server_busy = True
        await disturb()
        # Some time in which it is there.
        await asyncio.sleep(self._random.uniform(1.0, 3.0))
        self._fleet.is_server_busy = False

    async def _kill_server(self) -> None:
        self._report.count("SIGKILL of the server")
        self._fleet.kill_server()
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        await self._fleet.start_server()

    async def _kill_scheduler(self) -> None:
        self._report.count("SIGKILL of the scheduler")
        self._fleet.kill_scheduler()
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        await self._fleet.start_scheduler()

    async def _pause_server(self) -> None:
        self._report.count("SIGSTOP of the server beyond the leases")
        self._fleet.server.popen.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS + self._random.uniform(0.5, 2.0))
        self._fleet.server.popen.send_signal(signal.SIGCONT)

    async def _disturb(self, disturb: Callable[[WorkerSeat], Awaitable[None]], seat: WorkerSeat) -> None:
        seat.is_busy = True
        await disturb(seat)
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        seat.is_busy = False

    async def _kill_worker(self, seat: WorkerSeat) -> None:
        self._report.count("SIGKILL of a worker")
        self._fleet.kill_worker(seat)
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        await self._fleet.start_worker(seat)

    async def _pause_worker(self, seat: WorkerSeat) -> None:
        self._report.count("SIGSTOP of a worker beyond its lease")
        seat.send(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECONDS + self._random.uniform(1.0, 3.0))
        seat.send(signal.SIGCONT)

    async def _cut_network(self, seat: WorkerSeat) -> None:
        self._report.count("network of a worker cut")
        seat.proxy.cut()
        await asyncio.sleep(self._random.uniform(0.3, LEASE_SECONDS + 3.0))
        seat.proxy.heal()

    async def _silence_network(self, seat: WorkerSeat) -> None:
        self._report.count("network of a worker silent beyond its lease")
        seat.proxy.silence()
        await asyncio.sleep(LEASE_SECONDS + self._random.uniform(1.0, 3.0))
        seat.proxy.heal()
