"""complete: records how attempts ended, and what follows from it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rota.domain.ids import is_uuid
from rota.domain.retry import decide_retry
from rota.domain.states import TASK_FINAL, TaskState
from rota.domain.work import ErrorType, Finished, LogChunk, Report, ReportResult, WorkerIdentity
from rota.engine.advance import advance
from rota.engine.branches import Choice, read_choices
from rota.engine.core import MAX_ATTEMPT, Core, Ended, TaskDefinition, can_exist
from rota.engine.gate import find_started_again
from rota.engine.queueing import pass_keys_on
from rota.engine.record import note_task, record
from rota.store import attempts, outcomes
from rota.store.database import Transaction
from rota.store.encoding import encode_json, to_microseconds
from rota.store.history import Change
from rota.store.outcomes import Landed, Outcome, Standing
from rota.store.wakeups import Topic

ACCEPTED = ReportResult(True)
BAD_CHOICE = ReportResult(True, "bad_output", "the output of this branch does not name tasks right below it")
MAX_ERROR_CHARACTERS = 10_000
MAX_WORD_CHARACTERS = 40
END_STATES = ("success", "failed", "cancelled", "skipped")


class _End(NamedTuple):
    """The end of an attempt, as a worker tells it in place `place` of the batch."""

    place: int
    worker: WorkerIdentity
    told: Finished

    @property
    def key(self) -> tuple[str, int, str]:
        return (self.told.task_run_id, self.told.attempt, self.worker.incarnation)


async def report(
    core: Core, transaction: Transaction, said: Sequence[tuple[WorkerIdentity, Report]]
) -> list[ReportResult]:
    """Records logs and outcomes, of any number of workers; each lands or is refused on its own, in order.

    All of a transaction's reports come in one call, so that everything they touch is locked in one order.
    """
    results: dict[int, ReportResult] = {}
    chunks: list[tuple[int, WorkerIdentity, LogChunk]] = []
    ends: list[_End] = []
    for place, (worker, item) in enumerate(said):
        if not can_exist(item.task_run_id, item.attempt):
            results[place] = await _refuse_nonsense(transaction, item)
        elif isinstance(item, LogChunk):
            chunks.append((place, worker, item))
        elif item.status not in END_STATES:
            detail = f"expected a status of {', '.join(END_STATES)}, not {item.status[:100]!r}"
            results[place] = ReportResult(False, "bad_status", detail)
        else:
            ends.append(_End(place, worker, _trim(item)))
    if chunks:
        results |= await _keep_logs(transaction, chunks)
    if ends:
        results |= await _complete(core, transaction, ends)
    return [results[place] for place in range(len(said))]


def _trim(end: Finished) -> Finished:
    """The same, within what the columns hold."""
    is_code_fine = end.exit_code is None or -MAX_ATTEMPT <= end.exit_code <= MAX_ATTEMPT
    is_word_fine = end.error_type is None or len(end.error_type) <= MAX_WORD_CHARACTERS
    if is_code_fine and is_word_fine:
        return end
    word = end.error_type[:MAX_WORD_CHARACTERS] if end.error_type else None
    return replace(end, exit_code=end.exit_code if is_code_fine else None, error_type=word)


async def _refuse_nonsense(transaction: Transaction, item: Report) -> ReportResult:
    """An attempt that cannot be: asking a database about it would end its transaction."""
    known = await outcomes.read_standings(transaction, [item.task_run_id]) if is_uuid(item.task_run_id) else {}
    if known:
        return ReportResult(False, "late", f"there is no attempt {item.attempt} of task run {item.task_run_id}")
    return ReportResult(False, "unknown", f"there is no task run {item.task_run_id[:100]}")


async def _keep_logs(
    transaction: Transaction, chunks: Sequence[tuple[int, WorkerIdentity, LogChunk]]
) -> dict[int, ReportResult]:
    keys = {(chunk.task_run_id, chunk.attempt, worker.incarnation) for _place, worker, chunk in chunks}
    owned = await attempts.find_owned(transaction, sorted(keys))
    late = ReportResult(False, "late", "this attempt is no longer yours; its log was not kept")
    results: dict[int, ReportResult] = {}
    kept: list[tuple[str, int, int, bytes]] = []
    for place, worker, chunk in chunks:
        is_owned = (chunk.task_run_id, chunk.attempt, worker.incarnation) in owned
        results[place] = ACCEPTED if is_owned else late
        if is_owned:
            kept.append((chunk.task_run_id, chunk.attempt, chunk.offset, chunk.data))
    await attempts.append_logs(transaction, kept)
    if kept:
        transaction.wake(Topic.LOGS)
    return results


async def _complete(core: Core, transaction: Transaction, ends: Sequence[_End]) -> dict[int, ReportResult]:
    # The same attempt twice in one batch: the first counts.
    first: dict[tuple[str, int, str], _End] = {}
    for end in ends:
        first.setdefault(end.key, end)
    decided, notes = await _decide(core, transaction, list(first.values()))
    landed = await finish(core, transaction, decided)
    fresh = {(row.id, row.attempt, row.incarnation): row.status for row in landed}
    results: dict[int, ReportResult] = {}
    late: list[_End] = []
    for end in ends:
        if end.key in fresh:
            status = fresh.pop(end.key)
            is_refused = end.told.status == "success" and status != "success" and end.key not in notes
            results[end.place] = BAD_CHOICE if is_refused else notes.get(end.key, ACCEPTED)
        else:
            late.append(end)
    if late:
        results |= await _refuse_late(core, transaction, late)
    return results


async def _decide(
    core: Core, transaction: Transaction, ends: Sequence[_End]
) -> tuple[list[Outcome], dict[tuple[str, int, str], ReportResult]]:
    """What becomes of each attempt. Successes need no look at the database; the rest do."""
    checked = [(end, _check_output(core, end.told)) for end in ends]
    notes = {
        end.key: ReportResult(True, "bad_output", told.error or "") for end, told in checked if told is not end.told
    }
    doubtful = [told.task_run_id for _end, told in checked if told.status != "success"]
    standings = await outcomes.read_standings(transaction, doubtful) if doubtful else {}
    tasks = await core.find_tasks(transaction, [row.task_id for row in standings.values()]) if standings else {}
    decided = []
    for end, told in checked:
        standing = standings.get(told.task_run_id)
        if told.status == "success":
            decided.append(_succeed(end.worker, told))
        elif standing is not None:
            decided.append(_fail(end.worker, told, standing, tasks[standing.task_id]))
    return decided, notes


def _check_output(core: Core, end: Finished) -> Finished:
    if end.status != "success" or end.output is None:
        return end
    limit = core.options.max_output_bytes
    try:
        size = len(encode_json(end.output).encode())
        refusal = (
            f"the output has {size} bytes of JSON and the limit is {limit}: write it to a file and return its name"
        )
    except (TypeError, ValueError, RecursionError) as error:
        size = limit + 1
        refusal = f"the output cannot be written as JSON ({error}): return plain values"
    if size <= limit:
        return end
    return Finished(
        end.task_run_id,
        end.attempt,
        "failed",
        exit_code=end.exit_code,
        error_type=ErrorType.BAD_OUTPUT,
        error=refusal,
        usage=end.usage,
    )


def _succeed(worker: WorkerIdentity, end: Finished) -> Outcome:
    return Outcome(
        end.task_run_id,
        end.attempt,
        worker.incarnation,
        TaskState.SUCCESS,
        exit_code=end.exit_code,
        output_json=None if end.output is None else encode_json(end.output),
        usage_json=encode_json(end.usage) if end.usage else None,
    )


def _fail(worker: WorkerIdentity, end: Finished, standing: Standing, task: TaskDefinition) -> Outcome:
    status, delay_seconds = choose_failed_state(end, standing, task)
    is_loss = end.status == "cancelled" and not standing.is_cancelling
    return Outcome(
        end.task_run_id,
        end.attempt,
        worker.incarnation,
        status,
        exit_code=end.exit_code,
        error_type=_name_error(end, is_loss=is_loss),
        error=end.error[:MAX_ERROR_CHARACTERS] if end.error else None,
        delay_seconds=delay_seconds,
        is_failure=int(end.status == "failed"),
        is_loss=int(is_loss),
        usage_json=encode_json(end.usage) if end.usage else None,
        is_unconfirmed=end.is_unconfirmed,
    )


def _name_error(end: Finished, *, is_loss: bool) -> str | None:
    if end.status == "cancelled":
        return ErrorType.WORKER_LOST if is_loss else ErrorType.CANCELLED
    return end.error_type


def choose_failed_state(end: Finished, standing: Standing, task: TaskDefinition) -> tuple[TaskState, float]:
    """What becomes of an attempt that did not succeed, and after how long it is tried again."""
    if end.status == "skipped":
        return TaskState.SKIPPED, 0.0
    if standing.is_cancelling:
        return TaskState.CANCELLED, 0.0
    if end.status == "cancelled":
        # Nobody asked for it: the worker stopped. It is tried elsewhere, within the budget for lost work.
        is_spent = standing.lost_count + 1 >= standing.max_deliveries
        return (TaskState.FAILED if is_spent else TaskState.QUEUED), 0.0
    policy = task.spec.retry
    tries_used = standing.failure_count + 1
    is_again = decide_retry(
        policy,
        tries_used=tries_used,
        error_type=end.error_type,
        exit_code=end.exit_code,
        http_status=end.http_status,
    )
    if not is_again:
        return TaskState.FAILED, 0.0
    delay_seconds = policy.delay_before(
        tries_used + 1, retry_after_seconds=end.retry_after_seconds, randomness=random.random()
    )
    return (TaskState.RETRYING, delay_seconds) if delay_seconds > 0 else (TaskState.QUEUED, 0.0)


async def finish(core: Core, transaction: Transaction, decided: Sequence[Outcome]) -> list[Landed]:
    """Lands outcomes, keeps the attempts, and advances what waited for them."""
    landed, decided, left_out = await _land(core, transaction, decided)
    if not landed:
        return landed
    await pass_keys_on(core, transaction, landed)
    ready = await find_started_again(core, transaction, [row for row in landed if row.status == "queued"])
    by_key = {(outcome.task_run_id, outcome.attempt, outcome.incarnation): outcome for outcome in decided}
    pairs = [(row, by_key[row.id, row.attempt, row.incarnation]) for row in landed]
    again = [_attempt_row(row, outcome) for row, outcome in pairs if row.status not in TASK_FINAL]
    if again:
        await attempts.keep_attempts(transaction, again)
    changes = [change for row, outcome in pairs for change in _note_end(row, outcome)]
    if any(row.status == "queued" for row in landed):
        transaction.wake(Topic.QUEUE)
    if any(row.status == "retrying" for row in landed):
        transaction.wake(Topic.SCHEDULES)
    ended = [
        Ended(
            row.run_id,
            row.task_id,
            row.status,
            row.downstream_count,
            row.is_teardown,
            row.map_index,
            left_out.get(row.id, ()),
        )
        for row in landed
        if row.status in TASK_FINAL
    ]
    changes += await advance(core, transaction, ended, ready)
    await record(core, transaction, changes)
    return landed


async def _land(
    core: Core, transaction: Transaction, decided: Sequence[Outcome]
) -> tuple[list[Landed], Sequence[Outcome], dict[str, tuple[str, ...]]]:
    """What landed, of which outcomes, and what the branches among them left out.

    A branch's success does not land at first: its output is read then, and it fails if that names nobody."""
    landed = await outcomes.finish_attempts(transaction, decided) if decided else []
    if len(landed) == len(decided):
        return landed, decided, {}
    keys = {(row.id, row.attempt) for row in landed}
    held_back = [
        outcome
        for outcome in decided
        if outcome.status == TaskState.SUCCESS and (outcome.task_run_id, outcome.attempt) not in keys
    ]
    choices = await read_choices(core, transaction, held_back) if held_back else []
    if not choices:
        return landed, decided, {}
    read = [_settle_choice(choice) for choice in choices]
    landed += await outcomes.finish_attempts(transaction, read)
    left_out = {choice.outcome.task_run_id: choice.left_out for choice in choices}
    return landed, [*decided, *read], left_out


def _settle_choice(choice: Choice) -> Outcome:
    outcome = choice.outcome
    if choice.fault is None:
        return outcome._replace(is_choice_known=True)
    end = Finished(outcome.task_run_id, outcome.attempt, "failed", error_type=ErrorType.BAD_OUTPUT)
    status, delay_seconds = choose_failed_state(end, choice.standing, choice.task)
    return outcome._replace(
        status=status,
        error_type=ErrorType.BAD_OUTPUT,
        error=choice.fault[:MAX_ERROR_CHARACTERS],
        delay_seconds=delay_seconds,
        is_failure=1,
    )


def _attempt_row(row: Landed, outcome: Outcome) -> tuple[Any, ...]:
    return (
        row.id,
        row.attempt,
        row.run_id,
        "lost" if outcome.error_type == ErrorType.WORKER_LOST else "failed",
        row.worker_id,
        row.incarnation,
        to_microseconds(row.started_at),
        outcome.exit_code,
        outcome.error_type,
        outcome.error,
        outcome.usage_json,
        outcome.is_unconfirmed,
    )


def _note_end(row: Landed, outcome: Outcome) -> list[Change]:
    details: dict[str, Any] = {"attempt": row.attempt}
    if outcome.error_type:
        details["error_type"] = outcome.error_type
    if outcome.exit_code is not None:
        details["exit_code"] = outcome.exit_code
    if outcome.details:
        details |= outcome.details
    if row.status == "queued" and outcome.is_failure:
        # A retry without a delay passes through `retrying` in no time.
        return [
            note_task(row.id, row.run_id, row.namespace, "running", "retrying", details),
            note_task(row.id, row.run_id, row.namespace, "retrying", "queued"),
        ]
    return [note_task(row.id, row.run_id, row.namespace, "running", row.status, details)]


async def _refuse_late(core: Core, transaction: Transaction, late: Sequence[_End]) -> dict[int, ReportResult]:
    """Results of attempts that are over: refused, and kept in the history as such."""
    standings = await outcomes.read_standings(transaction, [end.told.task_run_id for end in late])
    changes = []
    results: dict[int, ReportResult] = {}
    for place, worker, end in late:
        standing = standings.get(end.task_run_id)
        if standing is None:
            results[place] = ReportResult(False, "unknown", f"there is no task run {end.task_run_id}")
            continue
        results[place] = ReportResult(
            False, "late", f"attempt {end.attempt} is over or not yours; the task run is {standing.status}"
        )
        details = {
            "event": "ignored late result",
            "attempt": end.attempt,
            "reported": end.status,
            "incarnation": worker.incarnation,
        }
        changes.append(
            note_task(standing.id, standing.run_id, standing.namespace, standing.status, standing.status, details)
        )
    await record(core, transaction, changes)
    return results
