"""wait: task runs that last until a time has come. They are started here, and end when they are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rota.domain.spec_names import check_instant
from rota.domain.states import Holder
from rota.domain.work import ErrorType
from rota.engine.await_runs import hold_for_run, look_for_runs
from rota.engine.core import Core, GateReport, ReadyTask
from rota.engine.gate import start_held
from rota.engine.held import HeldEnd, decide_held
from rota.outbound.caller import show_url
from rota.store.database import Transaction
from rota.store.gates import DueRow, Hold, PutOff
from rota.store.outcomes import Outcome

# Instants beyond these are as good as these, and every database and driver keeps them.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


async def start_waits(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    """Holds each until its time has come, or its timeout has."""
    return await start_held(transaction, ready, _make_hold)


def _make_hold(item: ReadyTask, document: Mapping[str, Any]) -> Hold:
    wait = document["wait"]
    bound_seconds = item.task.spec.timeout_seconds
    if "seconds" in wait:
        due_seconds = wait["seconds"] if bound_seconds is None else min(wait["seconds"], bound_seconds)
        return Hold(item.row.id, Holder.WAIT, due_seconds=due_seconds, waiting_for={"seconds": wait["seconds"]})
    if "http" in wait:
        http = wait["http"]
        asked = {"method": http.get("method", "GET"), "url": show_url(http["url"]), "polls": 0}
        return Hold(item.row.id, Holder.POLL, due_seconds=0.0, waiting_for=asked)
    if "run" in wait:
        date = wait["run"].get("logical_date")
        logical_at = item.row.logical_date if date is None else read_instant("wait.run.logical_date", date)
        return hold_for_run(item, wait["run"], logical_at)
    until_at = read_instant("wait.until", wait["until"])
    return Hold(item.row.id, Holder.WAIT, until_at, bound_seconds, {"until": until_at})


def read_instant(path: str, text: str) -> datetime:
    """The instant in a rendered field. Raises ValueError."""
    reason = check_instant(text.strip())
    if reason is not None:
        raise ValueError(f"{path}: {reason}")
    return min(max(datetime.fromisoformat(text.strip()), EARLIEST), LATEST).astimezone(UTC)


async def end_waits(core: Core, transaction: Transaction, due: Sequence[DueRow]) -> Sequence[Outcome | PutOff]:
    """Those whose time has come succeed; the others have run into their timeout, or wait for a run."""
    for_runs = [row for row in due if "workflow" in row.waiting_for]
    timed = [_end(row) for row in due if "workflow" not in row.waiting_for]
    ended = await decide_held(core, transaction, timed) if timed else []
    return [*ended, *(await look_for_runs(core, transaction, for_runs) if for_runs else [])]


def _end(row: DueRow) -> HeldEnd:
    if _is_over(row):
        return HeldEnd(row.id, row.attempt, Holder.WAIT, "success")
    reason = f"it did not end within {row.timeout_seconds:g} seconds"
    return HeldEnd(row.id, row.attempt, Holder.WAIT, "failed", ErrorType.TIMEOUT, reason)


def _is_over(row: DueRow) -> bool:
    if row.timeout_seconds is None:
        return True
    if "seconds" in row.waiting_for:
        return bool(row.waiting_for["seconds"] <= row.timeout_seconds)
    return datetime.fromisoformat(row.waiting_for["until"]) <= row.due_at
