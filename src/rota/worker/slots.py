"""How many attempts may run here, how many do, and how many have been asked for."""

from __future__ import annotations

import asyncio


class Slots:
    """Counts; `free` is what may still be asked for without ever holding more than the concurrency."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.running = 0
        # Asked for in claims that are under way.
        self.promised = 0
        self._freed = asyncio.Event()

    @property
    def free(self) -> int:
        return self.concurrency - self.running - self.promised

    def promise_all(self) -> int:
        """Sets aside every free slot for a claim, and says how many."""
        count = max(0, self.free)
        self.promised += count
        return count

    def redeem(self, count: int) -> None:
        """The claim is answered: the slots it had set aside are free, or taken by what it brought."""
        self.promised -= count
        self._freed.set()

    def take(self) -> None:
        self.running += 1

    def give_back(self, count: int) -> None:
        self.running -= count
        self._freed.set()

    async def wait_until_free(self) -> None:
        while self.free <= 0:
            self._freed.clear()
            await self._freed.wait()
