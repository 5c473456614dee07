"""Items of mapped tasks: their ends are counted, the next ones queued, and with the last one the mapped task ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rota.domain.states import Holder, TaskState
from rota.domain.work import ErrorType
from rota.engine.core import Core, Ended, GateReport, TaskDefinition
from rota.engine.record import note_task
from rota.store import maps, outcomes
from rota.store.database import Transaction
from rota.store.definitions import ROWS_PER_STATEMENT
from rota.store.history import Change
from rota.store.interventions import RunTask, Stopped
from rota.store.maps import MapRow
from rota.store.outcomes import Landed, Outcome, Standing
from rota.store.wakeups import Topic


async def settle_items(core: Core, transaction: Transaction, ended: Iterable[Ended]) -> GateReport:
    """What follows for their maps from the end of these items. The runs must be locked."""
    tallies: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for end in ended:
        tally = tallies[end.run_id, end.task_id]
        tally[0] += 1
        for place, status in enumerate((TaskState.FAILED, TaskState.CANCELLED, TaskState.SKIPPED), start=1):
            tally[place] += end.status == status
    counts = [(*key, ended, *others) for key, (ended, *others) in sorted(tallies.items())]
    rows = await maps.count_ends(transaction, counts)
    report = await queue_next(transaction, rows)
    report.add(await end_maps(core, transaction, [row for row in rows if row.remaining == 0]))
    return report


async def queue_next(transaction: Transaction, rows: Iterable[MapRow]) -> GateReport:
    """Queues items that wait for others of their map, as many as may be on their way at once."""
    report = GateReport()
    counted = []
    for row in rows:
        wanted = min(row.free, row.waiting)
        queued = 0
        while queued < wanted:
            part = min(wanted - queued, ROWS_PER_STATEMENT)
            items = await maps.queue_waiting(transaction, row.run_id, row.task_id, part)
            queued += len(items)
            report.changes += [note_task(item.id, item.run_id, item.namespace, "pending", "queued") for item in items]
            report.ready += [item.id for item in items if item.is_gated]
            if len(items) < part:
                break
        if queued:
            counted.append((row.run_id, row.task_id, -queued))
    if counted:
        await maps.count_waiting(transaction, counted)
        transaction.wake(Topic.QUEUE)
    return report


async def end_items(transaction: Transaction, run_id: str, stopped: Sequence[Stopped]) -> list[Ended]:
    """The ends of task runs that were cancelled; items among them that waited for others of their map do so no more."""
    given_up = Counter(row.task_id for row in stopped if row.map_index >= 0 and row.old_status == TaskState.PENDING)
    if given_up:
        await maps.count_waiting(transaction, [(run_id, task_id, -count) for task_id, count in given_up.items()])
    return [
        Ended(run_id, row.task_id, "cancelled", row.downstream_count, row.is_teardown, row.map_index) for row in stopped
    ]


def split_items(rows: Sequence[RunTask], chosen: Iterable[RunTask]) -> tuple[list[RunTask], list[RunTask]]:
    """Of what is to be tried again: tasks, and items. A mapped task is tried again with all of its failed items, and
    an item takes its mapped task along if that has ended."""
    parents = {row.task_id: row for row in rows if row.map_index < 0}
    wanted = {row.id for row in chosen}
    items = [
        row
        for row in rows
        if row.map_index >= 0
        and row.status == TaskState.FAILED
        and parents[row.task_id].status in (TaskState.FAILED, TaskState.RUNNING)
        and (row.id in wanted or parents[row.task_id].id in wanted)
    ]
    wanted |= {parents[row.task_id].id for row in items if parents[row.task_id].status == TaskState.FAILED}
    return [row for row in parents.values() if row.id in wanted], items


async def reopen_items(transaction: Transaction, run_id: str, items: Sequence[RunTask]) -> GateReport:
    """Failed items start over, as many at once as their maps allow."""
    report = GateReport()
    counts: Counter[str] = Counter()
    details = {"reason": "retried by request"}
    for start in range(0, len(items), ROWS_PER_STATEMENT):
        ids = [item.id for item in items[start : start + ROWS_PER_STATEMENT]]
        for row in await maps.wait_again(transaction, ids):
            counts[row.task_id] += 1
            report.changes.append(note_task(row.id, run_id, row.namespace, "failed", "pending", details))
    if counts:
        rows = await maps.reopen(transaction, [(run_id, task_id, count) for task_id, count in sorted(counts.items())])
        report.add(await queue_next(transaction, rows))
    return report


async def end_maps(core: Core, transaction: Transaction, rows: Sequence[MapRow]) -> GateReport:
    """Ends mapped tasks of which every item has ended."""
    report = GateReport()
    if not rows:
        return report
    standings = await outcomes.read_standings(transaction, [row.task_run_id for row in rows])
    tasks = await core.find_tasks(transaction, [row.task_id for row in rows])
    decided = [
        await _conclude(core, transaction, row, standings[row.task_run_id], tasks[row.task_id])
        for row in rows
        if row.task_run_id in standings
    ]
    errors = {outcome.task_run_id: outcome for outcome in decided}
    for landed in await outcomes.finish_attempts(transaction, decided):
        report.changes.append(_note_end(landed, errors[landed.id]))
        report.ended.append(
            Ended(landed.run_id, landed.task_id, landed.status, landed.downstream_count, landed.is_teardown, -1)
        )
    return report


def _note_end(landed: Landed, outcome: Outcome) -> Change:
    details: dict[str, Any] = {"attempt": landed.attempt}
    if outcome.error:
        details |= {"reason": outcome.error} | ({"error_type": outcome.error_type} if outcome.error_type else {})
    return note_task(landed.id, landed.run_id, landed.namespace, "running", landed.status, details)


async def _conclude(
    core: Core, transaction: Transaction, row: MapRow, standing: Standing, task: TaskDefinition
) -> Outcome:
    outcome = Outcome(row.task_run_id, row.attempt, "", TaskState.SUCCESS, holder=Holder.ITEMS)
    if standing.is_cancelling and row.cancelled:
        return outcome._replace(status=TaskState.CANCELLED, error_type=ErrorType.CANCELLED)
    if row.failed or row.cancelled:
        return _fail(outcome, ErrorType.ITEM_FAILED, _count_faults(row))
    if row.skipped == row.total:
        return outcome._replace(status=TaskState.SKIPPED, error="every item was skipped")
    if task.spec.output == "none":
        return outcome
    limit = core.options.max_output_bytes
    size = await maps.measure_outputs(transaction, row.run_id, row.task_id)
    if size <= limit:
        found = await maps.read_outputs(transaction, row.run_id, row.task_id)
        text = "[" + ",".join(output or "null" for output in found) + "]"
        size = len(text.encode())
        if size <= limit:
            return outcome._replace(output_json=text)
    reason = f"the outputs of its items have at least {size:,} bytes of JSON together and the limit is {limit:,}"
    advice = "let each return less, such as the name of a file, or send output: none if nobody needs the list"
    return _fail(outcome, ErrorType.BAD_OUTPUT, f"{reason}: {advice}")


def _fail(outcome: Outcome, error_type: ErrorType, error: str) -> Outcome:
    return outcome._replace(status=TaskState.FAILED, error_type=error_type, error=error, is_failure=1)


def _count_faults(row: MapRow) -> str:
    faults = ((row.failed, "failed"), (row.cancelled, "were cancelled"))
    told = " and ".join(f"{count:,} {word}" for count, word in faults if count)
    return f"of its {row.total:,} items {told}"
