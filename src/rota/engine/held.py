"""What the engine itself looks after: how a held task run ends, and what is done when its time comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.states import Holder, TaskState
from rota.domain.work import ErrorType, Finished
from rota.engine.complete import MAX_ERROR_CHARACTERS, choose_failed_state, finish
from rota.engine.core import Core, TaskDefinition
from rota.store import gates, outcomes
from rota.store.database import Transaction
from rota.store.encoding import encode_json
from rota.store.gates import DueRow, PutOff
from rota.store.outcomes import Landed, Outcome, Standing

BATCH = 500


@dataclass(frozen=True, slots=True)
class HeldEnd:
    """How a held task run is to end: success, failed (then the task's retries count), skipped or cancelled."""

    task_run_id: str
    attempt: int
    holder: Holder
    status: str
    error_type: str | None = None
    error: str | None = None
    output: Any = None
    # For the history.
    details: Mapping[str, Any] | None = None


async def finish_held(core: Core, transaction: Transaction, ends: Sequence[HeldEnd]) -> list[Landed]:
    """Ends held task runs and advances what waits for them; returns those that were still held. Locks their runs."""
    return await finish(core, transaction, await decide_held(core, transaction, ends)) if ends else []


async def decide_held(core: Core, transaction: Transaction, ends: Sequence[HeldEnd]) -> list[Outcome]:
    """The outcomes of held task runs, by the retry policies of their tasks."""
    standings = await outcomes.read_standings(transaction, [end.task_run_id for end in ends])
    tasks = await core.find_tasks(transaction, [row.task_id for row in standings.values()])
    return [
        _decide(end, standing, tasks[standing.task_id])
        for end in ends
        if (standing := standings.get(end.task_run_id)) is not None
    ]


def _decide(end: HeldEnd, standing: Standing, task: TaskDefinition) -> Outcome:
    status, delay_seconds = TaskState(end.status), 0.0
    if status is TaskState.FAILED:
        told = Finished(end.task_run_id, end.attempt, "failed", error_type=end.error_type)
        status, delay_seconds = choose_failed_state(told, standing, task)
    return Outcome(
        end.task_run_id,
        end.attempt,
        "",
        status,
        error_type=ErrorType.CANCELLED if status is TaskState.CANCELLED else end.error_type,
        error=end.error[:MAX_ERROR_CHARACTERS] if end.error else None,
        output_json=None if end.output is None else encode_json(end.output),
        delay_seconds=delay_seconds,
        is_failure=int(end.status == "failed"),
        holder=end.holder,
        details=end.details,
    )


async def serve_due(core: Core, transaction: Transaction) -> int:
    """Does what is due for held task runs: each kind of holder has its own answer."""
    due = await gates.find_due(transaction, BATCH)
    by_holder: dict[str, list[DueRow]] = defaultdict(list)
    for row in due:
        by_holder[row.holder].append(row)
    decided: list[Outcome] = []
    later: list[PutOff] = []
    for holder, rows in sorted(by_holder.items()):
        for answer in await core.due_handlers[holder](core, transaction, rows):
            if isinstance(answer, PutOff):
                later.append(answer)
            else:
                decided.append(answer)
    await finish(core, transaction, decided)
    # The runs come first: nobody may be waited for who holds one of these.
    if later:
        await gates.put_off(transaction, later)
    return len(due)
