"""Group commit: concurrent small calls share one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Gatherer(Generic[Item, Answer]):
    """Calls that arrive while a transaction is on its way go together into the next one.

    A transaction takes calls up to the weight `most`; beyond it, `lanes` transactions work side by side.
    When a shared transaction fails, its items are tried one by one, so that a bad one harms nobody else.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        lanes: int = 1,
        most: int = 200,
        weigh: Callable[[Item], int] = lambda _item: 1,
    ) -> None:
        self._work = work
        self._most = most
        self._weigh = weigh
        self._free = lanes
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, item: Item) -> Answer:
        """Does `item` together with whatever else is waiting."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._drain(), name="rota-gather")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _drain(self) -> None:
        try:
            while self._waiting:
                size = self._fit()
                part, self._waiting = self._waiting[:size], self._waiting[size:]
                await self._do(part)
        finally:
            self._free += 1

    def _fit(self) -> int:
        """How many of the waiting calls go into one transaction: the first, and what fits beside it."""
        weight = 0
        for place, (item, _future) in enumerate(self._waiting):
            weight += self._weigh(item)
            if weight > self._most:
                return max(1, place)
        return len(self._waiting)

    async def _do(self, part: Sequence[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._work([item for item, _future in part])
        except Exception as error:  # noqa: BLE001 - handed to whoever called
            await self._do_apart(part, error)
            return
        for (_item, future), answer in zip(part, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def _do_apart(self, part: Sequence[tuple[Item, asyncio.Future[Answer]]], error: Exception) -> None:
        if len(part) == 1:
            if not part[0][1].done():
                part[0][1].set_exception(error)
            return
        for entry in part:
            await self._do([entry])
