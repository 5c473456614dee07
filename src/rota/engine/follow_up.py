"""Follow-ups: what a transaction leaves to be done for other runs, by whoever gets to it first, and at once.

Whoever changes a run must not wait for another one, so what follows there is done in further transactions. The database
knows what these are; the process that has caused them does them without being asked, and a duty does what was left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from rota.domain.errors import Unavailable
from rota.store.database import Transaction

log = structlog.get_logger(__name__)


class FollowUp:
    """Which follow-ups this process knows of, and the task that does them, one round after the other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        # Does one round; how much that was. Without it nothing is done in the background.
        self.work: Callable[[], Awaitable[int]] | None = None
        self._workflow_ids: set[str] = set()
        self._is_called = False
        self._task: asyncio.Task[None] | None = None

    def soon(self, transaction: Transaction, workflow_ids: Iterable[str] = ()) -> None:
        """After the commit there is something to be done; in these workflows, runs wait to be started."""
        noted = frozenset(workflow_ids)
        transaction.after_commit(lambda: self._call(noted))

    def take_workflows(self) -> list[str]:
        """The workflows in which runs wait to be started. They are told once."""
        taken, self._workflow_ids = sorted(self._workflow_ids), set()
        return taken

    def _call(self, workflow_ids: frozenset[str]) -> None:
        self._workflow_ids |= workflow_ids
        self._is_called = True
        if self.work is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name="rota-follow-up")

    async def stop(self) -> None:
        """Does no further round, and waits for the one under way."""
        self.work = None
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._is_called:
            self._is_called = False
            try:
                while self.work is not None and await self.work():
                    pass
            except Unavailable as error:
                log.warning("follow_up_put_off", reason=error.detail)
            except Exception:
                log.exception("follow_up_failed")
