"""What a schedule's ticks do about its runs that are still open, decided in the transaction that creates the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.domain.overlap import OverlapDecision, decide_overlap
from rota.domain.schedule import ScheduleSpec
from rota.domain.schedule_plan import Fire
from rota.engine.cancel import cancel_run
from rota.engine.core import Core
from rota.engine.terminate import terminate_run
from rota.store import overlap
from rota.store.database import Transaction
from rota.store.overlap import OpenRun
from rota.store.schedules import ScheduleRow


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule whose row is locked, and its ticks that are to run now."""

    row: ScheduleRow
    spec: ScheduleSpec
    fires: Sequence[Fire]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was decided for one schedule; `others` are the runs that were in the way."""

    decision: OverlapDecision
    is_held_back: bool = False
    others: tuple[str, ...] = ()


async def resolve_overlaps(core: Core, transaction: Transaction, due: Sequence[DueSchedule]) -> dict[str, Resolved]:
    """Decides by schedule id. Open runs of schedules that do not allow overlaps are locked before anything of their
    workflows is, and cancelled or terminated where the policy says so."""
    found: dict[str, Resolved] = {
        item.row.id: Resolved(decide_overlap("allow", item.fires, 0)) for item in due if item.spec.overlap == "allow"
    }
    strict = [item for item in due if item.spec.overlap != "allow"]
    if not strict:
        return found
    open_runs = await overlap.lock_open_runs(transaction, [item.row.id for item in strict if item.fires])
    for item in strict:
        others = open_runs.get(item.row.id, [])
        decision = decide_overlap(item.spec.overlap, item.fires, len(others))
        found[item.row.id] = Resolved(decision, bool(others), tuple(run.id for run in others))
    return found | await _end_others(core, transaction, found, open_runs)


async def _end_others(
    core: Core, transaction: Transaction, found: Mapping[str, Resolved], open_runs: Mapping[str, list[OpenRun]]
) -> dict[str, Resolved]:
    """Ends the runs that newer ones replace. What then is still open, its workers being asked, holds these back."""
    ended: dict[str, Resolved] = {}
    for schedule_id, resolved in found.items():
        if resolved.decision.ending is None:
            continue
        # Those that wait first, or they would get the turn of the one that ends.
        for run in sorted(open_runs[schedule_id], key=lambda run: (run.status != "pending", run.id)):
            if resolved.decision.ending == "terminate":
                await terminate_run(core, transaction, run.id, "a newer run of its schedule replaces it")
            else:
                await cancel_run(core, transaction, run.id, "a newer run of its schedule replaces it")
        is_held_back = await overlap.has_open_run(transaction, schedule_id)
        ended[schedule_id] = Resolved(resolved.decision, is_held_back, resolved.others)
    return ended
