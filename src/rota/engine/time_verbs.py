"""The verbs of time, which the facade lists with all others: schedules, backfills, and what looks after both."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial

from rota.domain.errors import Conflict, NotFound
from rota.engine import arming, backfill, cancel, fire, prepare, rearm, review
from rota.engine.backfill import BackfillPlan, BackfillRequest
from rota.engine.core import Core
from rota.engine.fire import FireReport
from rota.store.database import Database
from rota.store.definitions import WorkflowRow

Place = tuple[datetime, str]


class TimeVerbs:
    """What the facade offers of schedules and backfills."""

    database: Database
    _core: Core

    async def plan_backfill(self, workflow: WorkflowRow, request: BackfillRequest) -> BackfillPlan:
        return await self.database.read(lambda tx: backfill.plan_backfill(self._core, tx, workflow, request))

    async def create_backfill(self, workflow: WorkflowRow, request: BackfillRequest) -> str:
        return await self.database.transact(lambda tx: backfill.create_backfill(self._core, tx, workflow, request))

    async def change_backfill(self, namespace: str, backfill_id: str, status: str) -> None:
        """Pauses, resumes or cancels a backfill, and with a cancel its open runs."""
        doomed = await self.database.transact(
            lambda tx: backfill.change_backfill(self._core, tx, namespace, backfill_id, status)
        )
        for run_id in doomed:
            with suppress(Conflict, NotFound):
                await self.database.transact(
                    partial(cancel.cancel_run, self._core, run_id=run_id, reason="its backfill was cancelled")
                )

    async def step_backfills(self) -> int:
        """Makes the next runs of one batch of backfills."""
        return await self.database.transact(lambda tx: backfill.step_backfills(self._core, tx))

    async def set_schedule_active(self, schedule_id: str, *, is_active: bool, reason: str = "") -> None:
        await self.database.transact(
            lambda tx: arming.set_schedule_active(self._core, tx, schedule_id, is_active=is_active, reason=reason)
        )

    async def fire(self) -> FireReport:
        """Fires one batch of due schedules."""
        return await self.database.transact(lambda tx: fire.fire(self._core, tx))

    async def prepare(self, slot_seconds: float, place: Place | None = None) -> prepare.Prepared:
        """Reads ahead one batch of what is due within the slot."""
        return await self.database.read(lambda tx: prepare.prepare(self._core, tx, slot_seconds, place))

    async def rearm(self, after_id: str | None = None) -> rearm.Rearmed:
        return await self.database.transact(lambda tx: rearm.rearm(self._core, tx, after_id))

    async def review(self) -> int:
        """Looks at one batch of ended runs that somebody watches."""
        return await self.database.transact(lambda tx: review.review(self._core, tx))
