"""Waking up who waits: a hint that something changed, never the carrier of data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from enum import StrEnum


class Topic(StrEnum):
    QUEUE = "queue"
    ORDERS = "orders"
    SCHEDULES = "schedules"
    HISTORY = "history"
    LOGS = "logs"
    CLUSTER = "cluster"


class Wakeups:
    """Counts the calls for each topic. Waiting starts from a count that the waiter has seen, so no call is missed."""

    def __init__(self) -> None:
        self._counts: dict[Topic, int] = dict.fromkeys(Topic, 0)
        self._events: dict[Topic, asyncio.Event] = {topic: asyncio.Event() for topic in Topic}
        # Passes local calls on to other processes.
        self.forward: Callable[[frozenset[Topic]], None] | None = None

    def count(self, topic: Topic) -> int:
        """Take this before looking at the data, and give it to `wait` when there was nothing."""
        return self._counts[topic]

    def call(self, topics: Iterable[Topic]) -> None:
        """Wakes up this process and the others."""
        called = frozenset(topics)
        self.call_locally(called)
        if self.forward and called:
            self.forward(called)

    def call_locally(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._counts[topic] += 1
            self._events[topic].set()
            self._events[topic] = asyncio.Event()

    async def wait(self, topic: Topic, seen: int, timeout_seconds: float) -> bool:
        """True once `topic` was called after `seen` was counted, False after the time-out."""
        if self._counts[topic] != seen:
            return True
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._events[topic].wait()
        except TimeoutError:
            return self._counts[topic] != seen
        return True
