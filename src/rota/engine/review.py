"""review: looks once at each end of a run that somebody watches, and pauses what has failed too often in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.domain.schedule import ScheduleSpec
from rota.engine.arming import set_active, set_schedule_active
from rota.engine.core import Core
from rota.store import reviews, schedules
from rota.store.database import Transaction
from rota.store.reviews import EndedRun
from rota.store.schedules import ScheduleRow

BATCH = 500


async def review(core: Core, transaction: Transaction) -> int:
    """Reviews one batch of ends. Whoever holds runs waits for no schedule, so the schedules are locked first."""
    found = await reviews.find_unreviewed(transaction, BATCH)
    if not found:
        return 0
    failed = [run for run in found if run.status == "failed"]
    rows = await schedules.lock_of_workflows(transaction, [run.workflow_id for run in failed]) if failed else []
    marked = await reviews.mark_reviewed(transaction, [run.id for run in found])
    landed = [run for run in failed if run.id in marked]
    if landed:
        await _pause_schedules(core, transaction, landed, {row.id: row for row in rows})
        await _pause_workflows(core, transaction, landed)
    return len(marked)


async def _pause_schedules(
    core: Core, transaction: Transaction, failed: Sequence[EndedRun], rows: dict[str, ScheduleRow]
) -> None:
    for schedule_id in sorted({run.schedule_id for run in failed if run.schedule_id in rows and run.schedule_id}):
        row = rows[schedule_id]
        spec: ScheduleSpec = core.read_schedule(row)
        most = spec.pause_after_failures
        if most is None or row.is_paused:
            continue
        latest = await reviews.read_latest_of_schedule(transaction, schedule_id, row.resumed_at, most)
        if _has_failed(latest, most):
            await set_schedule_active(core, transaction, schedule_id, is_active=False, reason=_explain(most))


async def _pause_workflows(core: Core, transaction: Transaction, failed: Sequence[EndedRun]) -> None:
    watches: Sequence[Any] = await reviews.read_watches(transaction, [run.workflow_id for run in failed])
    for watch in sorted(watches, key=lambda row: str(row.id)):
        most = watch.spec.get("pause_after_failures")
        if most is None or not watch.is_active:
            continue
        latest = await reviews.read_latest_of_workflow(transaction, watch.id, watch.resumed_at, most)
        if _has_failed(latest, most):
            await set_active(core, transaction, watch.id, is_active=False, reason=_explain(most))


def _has_failed(latest: Sequence[tuple[str, str]], most: int) -> bool:
    return len(latest) == most and all(status == "failed" for _run_id, status in latest)


def _explain(most: int) -> str:
    return "its last run failed" if most == 1 else f"its last {most} runs failed"
