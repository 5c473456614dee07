"""Statements on mapped tasks: their items, and the counters by which they end. The runs must be locked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    CTE,
    Boolean,
    ColumnElement,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    false,
    func,
    insert,
    literal,
    literal_column,
    null,
    select,
    type_coerce,
    update,
)

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, among, batch, constant, milliseconds_of, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs
from rota.store.tables_maps import task_maps
from rota.store.task_runs import MILLISECONDS_PER_PRIORITY, RANK

_t = task_runs.c
_m = task_maps.c


class MapRow(NamedTuple):
    """How far the items of a mapped task are."""

    run_id: str
    task_id: str
    task_run_id: str
    attempt: int
    total: int
    created: int
    concurrency: int | None
    remaining: int
    waiting: int
    failed: int
    cancelled: int
    skipped: int

    @property
    def active(self) -> int:
        """How many items are on their way."""
        return self.remaining - self.waiting - (self.total - self.created)

    @property
    def free(self) -> int:
        """How many more may be."""
        return self.total if self.concurrency is None else max(0, self.concurrency - self.active)


_COLUMNS = [_m[name] for name in MapRow._fields]

_new_maps = batch(
    "new_maps",
    run_id=Id(),
    task_id=Id(),
    task_run_id=Id(),
    attempt=Integer(),
    total=Integer(),
    created=Integer(),
    items=Text(),
    concurrency=Integer(),
    remaining=Integer(),
    waiting=Integer(),
)
_INSERT_MAPS = insert(task_maps).from_select(list(_new_maps.c.keys()), select(*_new_maps.c))


async def insert_maps(transaction: Transaction, maps: Sequence[MapRow], items: dict[str, str]) -> None:
    """Writes new maps; `items` is the JSON of those that have items without a task run, by task run id."""
    rows = [(*row[:6], items.get(row.task_run_id), row.concurrency, row.remaining, row.waiting) for row in maps]
    await transaction.run(_INSERT_MAPS, {"new_maps": encode_rows(rows)})


class NewItem(NamedTuple):
    """An item's task run, to be created."""

    id: str
    parent_id: str
    map_index: int
    item_json: str
    is_queued: bool
    is_gated: bool


_new = batch(
    "new_items", id=Id(), parent_id=Id(), map_index=Integer(), item=Text(), is_queued=Boolean(), is_gated=Boolean()
)
_INHERITED = (
    *("run_id", "namespace", "workflow_id", "task_id", "logical_date", "trigger_rule", "is_teardown", "lane_id"),
    *("priority", "is_limited", "retry_count", "max_deliveries", "timeout_seconds"),
)
_parents = (
    select(_t.id, *(_t[name] for name in _INHERITED))
    .where(within(_t.id, select(_new.c.parent_id).distinct().scalar_subquery()))
    .cte("parents")
    .prefix_with("MATERIALIZED")
)
_ranked_at = milliseconds_of(NOW) - _parents.c.priority * MILLISECONDS_PER_PRIORITY
_CREATE = insert(task_runs).from_select(
    [
        *("id", "map_index", "item", "is_gated", *_INHERITED),
        *("status", "claim_rank", "queued_at", "downstream_count", "is_branch", "created_at"),
    ],
    select(
        _new.c.id,
        _new.c.map_index,
        _new.c.item,
        _new.c.is_gated,
        *(_parents.c[name] for name in _INHERITED),
        case((_new.c.is_queued, constant("queued")), else_=constant("pending")),
        case((_new.c.is_queued, _ranked_at), else_=null()),
        case((_new.c.is_queued, NOW), else_=null()),
        literal(0),
        false(),
        NOW,
    ).join(_parents, _parents.c.id == _new.c.parent_id),
)


async def create_items(transaction: Transaction, items: Sequence[NewItem]) -> None:
    """Creates the task runs of items; those that are not queued wait for others of their map."""
    await transaction.run(_CREATE, {"new_items": encode_rows(items)})


_wanted = batch("wanted_maps", run_id=Id(), task_id=Id())


def _among_wanted(rows: CTE) -> ColumnElement[bool]:
    is_same = and_(_m.run_id == rows.c.run_id, _m.task_id == rows.c.task_id)
    return and_(is_same, among(_m.run_id, select(rows.c.run_id).scalar_subquery()))


_READ = select(*_COLUMNS).join(_wanted, _among_wanted(_wanted)).order_by(_m.run_id, _m.task_id)


async def read_maps(transaction: Transaction, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], MapRow]:
    """The maps of (run id, task id) that there are."""
    found = [MapRow(*row) for row in await transaction.rows(_READ, {"wanted_maps": encode_rows(keys)})]
    return {(row.run_id, row.task_id): row for row in found}


_ends = batch(
    "item_ends",
    run_id=Id(),
    task_id=Id(),
    ended=Integer(),
    failed=Integer(),
    cancelled=Integer(),
    skipped=Integer(),
)
_COUNT = (
    update(task_maps)
    .values(
        remaining=_m.remaining - _ends.c.ended,
        failed=_m.failed + _ends.c.failed,
        cancelled=_m.cancelled + _ends.c.cancelled,
        skipped=_m.skipped + _ends.c.skipped,
    )
    .where(_among_wanted(_ends))
    .returning(*_COLUMNS)
)


async def count_ends(transaction: Transaction, ends: Sequence[tuple[Any, ...]]) -> list[MapRow]:
    """Counts (run id, task id, ended, of these failed, cancelled, skipped)."""
    return [MapRow(*row) for row in await transaction.rows(_COUNT, {"item_ends": encode_rows(ends)})]


_waits = batch("item_waits", run_id=Id(), task_id=Id(), waiting=Integer())
_COUNT_WAITING = (
    update(task_maps).values(waiting=_m.waiting + _waits.c.waiting).where(_among_wanted(_waits)).returning(*_COLUMNS)
)


async def count_waiting(transaction: Transaction, waits: Sequence[tuple[str, str, int]]) -> list[MapRow]:
    """Counts (run id, task id, how many more wait for others of their map)."""
    return [MapRow(*row) for row in await transaction.rows(_COUNT_WAITING, {"item_waits": encode_rows(waits)})]


class QueuedItem(NamedTuple):
    id: str
    run_id: str
    namespace: str
    is_gated: bool


_waiting = task_runs.alias("waiting")
_NEXT = (
    select(_waiting.c.id)
    .where(
        _waiting.c.run_id == bindparam("of_run", type_=Id()),
        _waiting.c.task_id == bindparam("of_task", type_=Id()),
        _waiting.c.status == constant("pending"),
        _waiting.c.map_index >= literal_column("0"),
    )
    .order_by(_waiting.c.map_index)
    .limit(bindparam("at_most", type_=Integer()))
)
_QUEUE_NEXT = (
    update(task_runs)
    .values(status="queued", claim_rank=RANK, queued_at=NOW)
    .where(within(_t.id, _NEXT.scalar_subquery()), _t.status == constant("pending"))
    .returning(*(_t[name] for name in QueuedItem._fields))
)


async def queue_waiting(transaction: Transaction, run_id: str, task_id: str, limit: int) -> list[QueuedItem]:
    """Queues the first items of a map that wait."""
    parameters = {"of_run": run_id, "of_task": task_id, "at_most": limit}
    return [QueuedItem(*row) for row in await transaction.rows(_QUEUE_NEXT, parameters)]


_of_map = and_(
    _t.run_id == bindparam("of_run", type_=Id()), _t.task_id == bindparam("of_task", type_=Id()), _t.map_index >= 0
)
_text = type_coerce(_t.output, Text())
_SIZE = select(func.coalesce(func.sum(func.length(_text)), 0)).where(_of_map)
_OUTPUTS = select(_text).where(_of_map).order_by(_t.map_index)


async def measure_outputs(transaction: Transaction, run_id: str, task_id: str) -> int:
    """How many characters of JSON the outputs of a map's items have together."""
    row = await transaction.row(_SIZE, {"of_run": run_id, "of_task": task_id})
    return int(row[0]) if row else 0


async def read_outputs(transaction: Transaction, run_id: str, task_id: str) -> list[str | None]:
    """The JSON of the outputs of a map's items, in their order."""
    return [row[0] for row in await transaction.rows(_OUTPUTS, {"of_run": run_id, "of_task": task_id})]


_holds = batch("map_holds", run_id=Id(), task_id=Id(), attempt=Integer())
_HOLD = update(task_maps).values(attempt=_holds.c.attempt).where(_among_wanted(_holds)).returning(*_COLUMNS)


async def hold_again(transaction: Transaction, holds: Sequence[tuple[str, str, int]]) -> list[MapRow]:
    """The attempt of (run id, task id, attempt) holds the items from now on."""
    return [MapRow(*row) for row in await transaction.rows(_HOLD, {"map_holds": encode_rows(holds)})]


_again = batch("maps_again", run_id=Id(), task_id=Id(), again=Integer())
_REOPEN = (
    update(task_maps)
    .values(
        remaining=_m.remaining + _again.c.again, waiting=_m.waiting + _again.c.again, failed=_m.failed - _again.c.again
    )
    .where(_among_wanted(_again))
    .returning(*_COLUMNS)
)
_items_again = batch("items_again", id=Id())
_WAIT = (
    update(task_runs)
    .values(
        status="pending",
        claim_rank=None,
        queued_at=None,
        finished_at=None,
        failure_count=0,
        lost_count=0,
        cancel_requested_at=None,
    )
    .where(within(_t.id, select(_items_again.c.id).scalar_subquery()), _t.status == constant("failed"))
    .returning(_t.id, _t.task_id, _t.namespace)
)


async def wait_again(transaction: Transaction, item_ids: Sequence[str]) -> Sequence[Any]:
    """Failed items start over, with their whole budget of tries: first they wait for others of their map."""
    return await transaction.rows(_WAIT, {"items_again": encode_rows([(item_id,) for item_id in item_ids])})


async def reopen(transaction: Transaction, again: Sequence[tuple[str, str, int]]) -> list[MapRow]:
    """Counts (run id, task id, failed items that wait once more)."""
    return [MapRow(*row) for row in await transaction.rows(_REOPEN, {"maps_again": encode_rows(again)})]


_UNFINISHED = select(_m.run_id, _m.task_id).where(_m["items"].is_not(None)).order_by(_m.run_id, _m.task_id).limit(1)


async def find_unfinished(transaction: Transaction) -> tuple[str, str] | None:
    """A map of which not all items have a task run."""
    row = await transaction.row(_UNFINISHED)
    return (row[0], row[1]) if row else None


_key = and_(_m.run_id == bindparam("of_run", type_=Id()), _m.task_id == bindparam("of_task", type_=Id()))
_ITEMS = select(_m["items"]).where(_key)


async def read_items(transaction: Transaction, run_id: str, task_id: str) -> Sequence[Any] | None:
    """All items of a map of which not all have a task run."""
    row = await transaction.row(_ITEMS, {"of_run": run_id, "of_task": task_id})
    found: Sequence[Any] | None = row[0] if row else None
    return found


_new_created = bindparam("new_created", type_=Integer())
_GO_ON = (
    update(task_maps)
    .values(
        created=_new_created,
        waiting=_m.waiting + bindparam("new_waiting", type_=Integer()),
        items=case((_new_created == _m.total, null()), else_=type_coerce(_m["items"], Text())),
    )
    .where(_key)
)
_CUT = (
    update(task_maps)
    .values(total=_m.created, remaining=_m.remaining - (_m.total - _m.created), items=None)
    .where(_key, _m["items"].is_not(None))
    .returning(*_COLUMNS)
)


async def note_created(transaction: Transaction, run_id: str, task_id: str, *, created: int, waiting: int) -> None:
    """So many items have a task run now, and so many more of these wait for others."""
    parameters = {"of_run": run_id, "of_task": task_id, "new_created": created, "new_waiting": waiting}
    await transaction.run(_GO_ON, parameters)


async def cut(transaction: Transaction, run_id: str, task_id: str) -> MapRow | None:
    """Gives up the items that have no task run."""
    row = await transaction.row(_CUT, {"of_run": run_id, "of_task": task_id})
    return MapRow(*row) if row else None


_one = batch("items_of", id=Id())
_VALUES = select(_t.id, _t["item"]).where(within(_t.id, select(_one.c.id).scalar_subquery()))


async def read_values(transaction: Transaction, task_run_ids: Sequence[str]) -> dict[str, Any]:
    """The item of each of these task runs."""
    parameters = {"items_of": encode_rows([(task_run_id,) for task_run_id in task_run_ids])}
    return {row[0]: row[1] for row in await transaction.rows(_VALUES, parameters)}
