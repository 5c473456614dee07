"""expand: a mapped task gets one task run for each of its items, and is held until they have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rota.domain.mapping import read_items
from rota.domain.states import Holder, TaskState
from rota.domain.work import ErrorType
from rota.engine import gate
from rota.engine.advance import advance
from rota.engine.core import Core, GateReport, ReadyTask, TaskDefinition
from rota.engine.expressions import ExpressionFailed
from rota.engine.items import end_maps
from rota.engine.record import note_task, record
from rota.store import maps, outcomes, workflow_runs
from rota.store.database import Transaction
from rota.store.definitions import ROWS_PER_STATEMENT
from rota.store.encoding import encode_json
from rota.store.gates import Hold, Verdict
from rota.store.maps import MapRow, NewItem
from rota.store.wakeups import Topic

# So many items are created in one transaction; `expand_maps` goes on with the others.
ITEMS_AT_ONCE = 5_000
MAX_ITEMS_BYTES = 5_000_000


async def start_maps(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    """Starts mapped tasks: with new items, or, when they are retried, with those that are there."""
    known = await maps.read_maps(transaction, [(item.row.run_id, item.row.task_id) for item in ready])
    again = [item for item in ready if (item.row.run_id, item.row.task_id) in known]
    fresh = [item for item in ready if (item.row.run_id, item.row.task_id) not in known]
    report = await _go_on(core, transaction, again) if again else GateReport()
    if fresh:
        report.add(await _begin(core, transaction, fresh))
    return report


async def _go_on(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    report = await gate.hold(transaction, [(item, Hold(item.row.id, Holder.ITEMS)) for item in ready])
    holds = [(item.row.run_id, item.row.task_id, item.row.attempt + 1) for item in ready]
    rows = await maps.hold_again(transaction, holds)
    # There may be nothing that could be tried again.
    report.add(await end_maps(core, transaction, [row for row in rows if row.remaining == 0]))
    return report


async def _begin(core: Core, transaction: Transaction, ready: Sequence[ReadyTask]) -> GateReport:
    verdicts: list[tuple[ReadyTask, Verdict]] = []
    going: list[tuple[ReadyTask, list[str]]] = []
    for item in ready:
        items = _evaluate(item)
        if isinstance(items, Verdict):
            verdicts.append((item, items))
        else:
            going.append((item, items))
    report = await gate.close(transaction, verdicts)
    report.add(await gate.hold(transaction, [(item, Hold(item.row.id, Holder.ITEMS)) for item, _items in going]))
    if going:
        report.add(await _create_maps(core, transaction, going))
    return report


def _evaluate(item: ReadyTask) -> list[str] | Verdict:
    """The JSON of each item, or how a task ends that has none."""
    mapping = item.task.mapping
    if mapping is None:
        raise AssertionError("only mapped tasks get here")
    try:
        found = read_items(mapping.evaluate(item.values), item.task.spec.map_limit)
        items = _encode(found)
    except ExpressionFailed as error:
        return Verdict(item.row.id, TaskState.FAILED, ErrorType.BAD_TASK, f"map_over: {error}")
    except (ValueError, TypeError, RecursionError) as error:
        return Verdict(item.row.id, TaskState.FAILED, ErrorType.BAD_TASK, f"map_over: {mapping.text}: {error}")
    if not items:
        return Verdict(item.row.id, TaskState.SKIPPED, error=f"map_over: {mapping.text} is empty")
    return items


def _encode(found: Sequence[Any]) -> list[str]:
    items = []
    left = MAX_ITEMS_BYTES
    for value in found:
        items.append(encode_json(value))
        left -= len(items[-1])
        if left < 0:
            raise ValueError(f"its items have more than {MAX_ITEMS_BYTES:,} bytes of JSON: map over names or places")
    return items


@dataclass(slots=True)
class _Batch:
    """Items that are created together, and what is to be told of them."""

    core: Core
    items: list[NewItem] = field(default_factory=list)
    report: GateReport = field(default_factory=GateReport)

    def add(self, row: MapRow, task: TaskDefinition, items: Sequence[str], *, first: int, queued: int) -> None:
        """Items of one map, of which the first so many are queued."""
        is_gated = task.has_gate_again
        for place, (item_id, text) in enumerate(zip(self.core.new_ids(len(items)), items, strict=True)):
            is_queued = place < queued
            self.items.append(NewItem(item_id, row.task_run_id, first + place, text, is_queued, is_gated))
            if is_queued:
                self.report.changes.append(note_task(item_id, row.run_id, task.namespace, "pending", "queued"))
                self.report.ready += [item_id] if is_gated else []

    async def create(self, transaction: Transaction) -> None:
        for start in range(0, len(self.items), ROWS_PER_STATEMENT):
            await maps.create_items(transaction, self.items[start : start + ROWS_PER_STATEMENT])
        if self.items:
            transaction.wake(Topic.QUEUE)


async def _create_maps(
    core: Core, transaction: Transaction, going: Sequence[tuple[ReadyTask, list[str]]]
) -> GateReport:
    batch = _Batch(core)
    rows: list[MapRow] = []
    rest: dict[str, str] = {}
    for item, items in going:
        row, task = item.row, item.task
        created = min(len(items), ITEMS_AT_ONCE - len(batch.items))
        concurrency = task.spec.map_concurrency
        queued = created if concurrency is None else min(created, concurrency)
        made = MapRow(
            *(row.run_id, row.task_id, row.id, row.attempt + 1, len(items), created, concurrency),
            *(len(items), created - queued, 0, 0, 0),
        )
        rows.append(made)
        batch.add(made, task, items[:created], first=0, queued=queued)
        if created < len(items):
            rest[row.id] = f"[{','.join(items)}]"
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        await maps.insert_maps(transaction, rows[start : start + ROWS_PER_STATEMENT], rest)
    if rest:
        transaction.wake(Topic.SCHEDULES)
    await batch.create(transaction)
    return batch.report


async def expand_maps(core: Core, transaction: Transaction) -> int:
    """Creates the next items of one map that has too many for one transaction; how many it dealt with."""
    found = await maps.find_unfinished(transaction)
    if found is None:
        return 0
    await workflow_runs.lock_runs(transaction, [found[0]])
    items = await maps.read_items(transaction, *found)
    row = (await maps.read_maps(transaction, [found])).get(found)
    if row is None or items is None:
        # Another node was faster.
        return 1
    standing = (await outcomes.read_standings(transaction, [row.task_run_id]))[row.task_run_id]
    if standing.is_cancelling or standing.holder != Holder.ITEMS:
        return await _cut(core, transaction, row)
    task = (await core.find_tasks(transaction, [row.task_id]))[row.task_id]
    texts = [encode_json(item) for item in items[row.created : row.created + ITEMS_AT_ONCE]]
    queued = min(len(texts), max(0, row.free - row.waiting))
    batch = _Batch(core)
    batch.add(row, task, texts, first=row.created, queued=queued)
    await batch.create(transaction)
    created = row.created + len(texts)
    await maps.note_created(transaction, *found, created=created, waiting=len(texts) - queued)
    changes = batch.report.changes + await advance(core, transaction, [], batch.report.ready)
    await record(core, transaction, changes)
    return len(texts)


async def _cut(core: Core, transaction: Transaction, row: MapRow) -> int:
    """The mapped task is being cancelled: the items that do not exist yet never will."""
    left = await maps.cut(transaction, row.run_id, row.task_id)
    if left is not None and left.remaining == 0:
        report = await end_maps(core, transaction, [left])
        changes = report.changes + await advance(core, transaction, report.ended)
        await record(core, transaction, changes)
    return row.total - row.created
