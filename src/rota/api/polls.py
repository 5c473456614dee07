"""Long polls: held until there is something to say, the caller is gone, or the server stops."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """How a poll ended: with a value, or because the connection broke, or (neither) because the server stops."""

    value: T | None = None
    is_gone: bool = False


class Polls:
    """The long polls that this process holds at the moment."""

    def __init__(self) -> None:
        # Counts of wake-ups mean nothing to another process.
        self.node = secrets.token_hex(4)
        self._closing = asyncio.Event()
        self._listening: Counter[str] = Counter()

    def close(self) -> None:
        """The server stops: polls are answered at once, and broken connections say nothing about workers."""
        self._closing.set()

    async def wait_until_closing(self) -> None:
        await self._closing.wait()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    async def hold(self, request: Request, work: Coroutine[Any, Any, T]) -> Held[T]:
        """Waits for `work` as long as somebody waits for us."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_wait_until_gone(request))
        closing = asyncio.ensure_future(self._closing.wait())
        everything = {working, leaving, closing}
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return Held(working.result())
            return Held(is_gone=leaving.done() and not self.is_closing)
        finally:
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    @contextmanager
    def listen(self, incarnation: str) -> Iterator[None]:
        """Marks a worker as connected here."""
        self._listening[incarnation] += 1
        try:
            yield
        finally:
            self._listening[incarnation] -= 1
            if not self._listening[incarnation]:
                del self._listening[incarnation]

    def count_lines(self, incarnation: str) -> int:
        """How many connections a worker holds here."""
        return self._listening[incarnation]


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
