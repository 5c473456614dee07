"""Polls of waits for HTTP: who makes them takes each for a while, and tells what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from rota.domain.spec_action import POLL_SECONDS
from rota.domain.states import Holder
from rota.domain.work import ErrorType
from rota.engine.core import Core, ReadyTask
from rota.engine.gate import make_ready, render
from rota.engine.held import HeldEnd, finish_held
from rota.store import gates, polls
from rota.store.database import Transaction
from rota.store.gates import PutOff
from rota.store.polls import PollRow
from rota.store.schedules import read_now

# A poll that nobody has told anything about for so long is due again: its node has died.
TAKEN_SECONDS = 30.0
# A server may wish to be left alone for so long.
MAX_RETRY_AFTER_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Poll:
    """One request to be made; until `due_at` nobody else will make it."""

    task_run_id: str
    attempt: int
    due_at: datetime
    # The `http` of the definition, rendered; or why it cannot be.
    request: Mapping[str, Any]
    fault: str | None
    # What becomes of the body: json, text or none.
    output: str
    deadline_at: datetime | None
    seconds_left: float | None
    timeout_seconds: float | None
    waiting_for: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PollResult:
    """What came of a poll. With an `error_type` there is no use in asking again."""

    poll: Poll
    is_met: bool
    sentence: str
    output: Any = None
    error_type: ErrorType | None = None
    retry_after_seconds: float = 0.0


class Polls:
    """Gives out the polls that are due, and takes what came of them, each in its transaction."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def take(self, limit: int) -> Sequence[Poll]:
        """Polls that are due. Tell what came of each: untold, it is due again after a while."""
        if not await self._core.database.read(lambda tx: polls.find_due_polls(tx, 1)):
            return ()
        return await self._core.database.transact(lambda tx: take_polls(self._core, tx, limit))

    async def tell(self, results: Sequence[PollResult]) -> None:
        """What came of polls."""
        await self._core.database.transact(lambda tx: tell_polls(self._core, tx, results))


async def take_polls(core: Core, transaction: Transaction, limit: int) -> list[Poll]:
    """Polls that are due, each given to nobody else for a while."""
    due = await polls.find_due_polls(transaction, limit)
    taken = [
        PutOff(row.id, row.attempt, row.due_at, _bound(row.now, TAKEN_SECONDS, _find_deadline(row))) for row in due
    ]
    landed = await gates.put_off(transaction, taken) if taken else set()
    rows = await gates.read_held(transaction, sorted(landed)) if landed else []
    ready = {item.row.id: item for item in await make_ready(core, transaction, rows)}
    return [
        _make_poll(row, item.next_due_at, ready[row.id])
        for row, item in zip(due, taken, strict=True)
        if row.id in ready
    ]


def _find_deadline(row: PollRow) -> datetime | None:
    return None if row.timeout_seconds is None else row.started_at + timedelta(seconds=row.timeout_seconds)


def _bound(now: datetime, seconds: float, deadline_at: datetime | None) -> datetime:
    """So many seconds from now, or the deadline if that is to come before."""
    later = now + timedelta(seconds=seconds)
    return min(later, deadline_at) if deadline_at is not None and deadline_at > now else later


def _make_poll(row: PollRow, due_at: datetime, item: ReadyTask) -> Poll:
    fault, request = None, {}
    try:
        request = render(item)["wait"]["http"]
    except ValueError as error:
        fault = str(error)
    deadline_at = _find_deadline(row)
    return Poll(
        row.id,
        row.attempt,
        due_at,
        request,
        fault,
        item.task.spec.output,
        deadline_at,
        None if deadline_at is None else (deadline_at - row.now).total_seconds(),
        row.timeout_seconds,
        row.waiting_for,
    )


async def tell_polls(core: Core, transaction: Transaction, results: Sequence[PollResult]) -> None:
    """Ends the waits that are met, beyond hope or over their time, and puts the others off to their next poll."""
    now = await read_now(transaction)
    ends = [end for result in results if (end := _find_end(result, now)) is not None]
    await finish_held(core, transaction, ends)
    ended = {end.task_run_id for end in ends}
    again = [_put_off(result, now) for result in results if result.poll.task_run_id not in ended]
    if again:
        await gates.put_off(transaction, again)


def _find_end(result: PollResult, now: datetime) -> HeldEnd | None:
    poll = result.poll
    if result.is_met:
        return HeldEnd(poll.task_run_id, poll.attempt, Holder.POLL, "success", output=result.output)
    if result.error_type is not None:
        return HeldEnd(poll.task_run_id, poll.attempt, Holder.POLL, "failed", result.error_type, result.sentence)
    if poll.deadline_at is None or poll.deadline_at > now:
        return None
    last = result.sentence or poll.waiting_for.get("last") or "nothing"
    reason = f"no answer as expected within {poll.timeout_seconds:g} seconds; the last one: {last}"
    return HeldEnd(poll.task_run_id, poll.attempt, Holder.POLL, "failed", ErrorType.TIMEOUT, reason)


def _put_off(result: PollResult, now: datetime) -> PutOff:
    poll = result.poll
    count = poll.waiting_for.get("polls", 0) + 1
    pause_seconds = max(choose_interval(poll.request, count), min(result.retry_after_seconds, MAX_RETRY_AFTER_SECONDS))
    told = {**poll.waiting_for, "polls": count, "last": result.sentence}
    return PutOff(poll.task_run_id, poll.attempt, poll.due_at, _bound(now, pause_seconds, poll.deadline_at), told)


def choose_interval(request: Mapping[str, Any], count: int) -> float:
    """Seconds to the next poll after so many: always the same, or each time the double up to the longest."""
    interval_seconds = float(request.get("interval_seconds", POLL_SECONDS))
    longest_seconds = float(request.get("max_interval_seconds", interval_seconds))
    # Beyond so many doublings everything is longer than the longest.
    return min(interval_seconds * 2.0 ** min(count - 1, 20), longest_seconds)
