"""Jobs without pause, through whichever node answers; each acknowledgement is remembered, with its instant."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

import aiohttp

JOBS_AT_ONCE = 4
PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 20.0
# Every second, and no tick may be missing: those that are late are made up for.
TICKER = {
    "name": "ticker",
    "interval_seconds": 1,
    "misfire": "all",
    "grace_seconds": 3600,
    "tasks": [{"name": "tick", "command": "true", "max_deliveries": 30}],
}
# What a node may answer while nobody leads the database.
EXPECTED = {503}


class Load:
    """Submits until it is stopped."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)
        self._numbers = itertools.count()
        self._stopping = asyncio.Event()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))
        self.acknowledged: dict[str, float] = {}
        self.unanswered = 0
        self.faults: list[str] = []

    async def close(self) -> None:
        await self._session.close()

    def stop(self) -> None:
        self._stopping.set()

    async def define(self) -> None:
        status, answer = await self.call("POST", "/workflows", TICKER)
        assert status == 201, answer

    async def run(self) -> None:
        await asyncio.gather(*(self._submit_forever() for _ in range(JOBS_AT_ONCE)))

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON of the answer; status 0 without one."""
        url = self._urls[next(self._numbers) % len(self._urls)]
        try:
            async with self._session.request(method, url + path, json=body) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, ValueError):
            return 0, None

    async def _submit_forever(self) -> None:
        while not self._stopping.is_set():
            status, answer = await self.call("POST", "/jobs", {"command": "true"})
            if status == 201:
                self.acknowledged[answer["id"]] = time.monotonic()
            elif status in EXPECTED:
                self.unanswered += 1
            else:
                self.unanswered += 1
                self.faults.append(f"POST /jobs answered {status}: {answer}")
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                await self._stopping.wait()
        except TimeoutError:
            return

    def find_gap(self, since: float) -> float | None:
        """How long nothing was acknowledged around this instant; None while it still lasts."""
        before = [moment for moment in self.acknowledged.values() if moment <= since]
        # Right after the kill an answer may still come that was on its way: the longest silence is the gap.
        moments = sorted([max(before, default=since), *(m for m in self.acknowledged.values() if m > since)])
        gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
        return max(gaps, default=None)
