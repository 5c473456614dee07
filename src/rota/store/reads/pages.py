"""Lists in pages, newest first: by cursor (the id after which to go on) or by offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select

from rota.domain.ids import make_uuid7
from rota.store.database import Transaction
from rota.store.encoding import to_microseconds

# Counting stops here: beyond it, a list does not say how many there are.
COUNT_LIMIT = 10_000
# The clocks of nodes, which make the ids, and that of the database are no further apart than this.
SKEW_MILLISECONDS = 300_000


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of a list is wanted."""

    limit: int = 20
    offset: int = 0
    # Go on after the entry with this id.
    after: str | None = None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """When something was made: from `since` on, and before `until`."""

    since: datetime | None = None
    until: datetime | None = None


ALWAYS = TimeRange()


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of a list; `total` is known for short lists only, `next_after` when there is more."""

    rows: Sequence[Any]
    total: int | None = None
    next_after: str | None = None


async def read_page(
    transaction: Transaction,
    statement: Select[Any],
    key: ColumnElement[Any],
    page: PageRequest,
    *,
    is_counted: bool = True,
) -> Listing:
    """One page of `statement`, newest first by `key`, which is selected as `id`."""
    total = await _count(transaction, statement) if is_counted and page.after is None else None
    if page.after is not None:
        statement = statement.where(key < page.after)
    statement = statement.order_by(key.desc()).limit(page.limit + 1).offset(page.offset)
    rows = await transaction.rows(statement)
    is_more = len(rows) > page.limit
    rows = rows[: page.limit]
    return Listing(rows, total, str(rows[-1].id) if is_more else None)


async def read_ordered(
    transaction: Transaction, statement: Select[Any], order: Sequence[ColumnElement[Any]], page: PageRequest
) -> Listing:
    """One page of `statement` in an order of its own, by offset."""
    total = await _count(transaction, statement)
    rows = await transaction.rows(statement.order_by(*order).limit(page.limit).offset(page.offset))
    return Listing(rows, total)


def made_within(key: ColumnElement[Any], made_at: ColumnElement[Any], when: TimeRange) -> list[ColumnElement[bool]]:
    """The conditions for a time range. Ids are made in the order of time, so their index has the place; the column has
    the exact time, by the database's clock."""
    conditions: list[ColumnElement[bool]] = []
    if when.since is not None:
        conditions += [key >= _bound(when.since, -SKEW_MILLISECONDS, b"\0"), made_at >= when.since]
    if when.until is not None:
        conditions += [key < _bound(when.until, SKEW_MILLISECONDS, b"\xff"), made_at < when.until]
    return conditions


def _bound(moment: datetime, skew: int, noise: bytes) -> str:
    milliseconds = (to_microseconds(moment) or 0) // 1000 + skew
    return make_uuid7(max(0, min(milliseconds, 2**48 - 1)), noise * 10)


async def _count(transaction: Transaction, statement: Select[Any]) -> int | None:
    found = statement.with_only_columns(literal(1), maintain_column_froms=True).limit(COUNT_LIMIT + 1).subquery()
    row = await transaction.row(select(func.count()).select_from(found))
    return None if row is None or row[0] > COUNT_LIMIT else int(row[0])
