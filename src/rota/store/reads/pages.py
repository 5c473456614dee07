"""Lists in pages, newest first: by cursor (the id after which to go on) or by offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select

from rota.store.database import Transaction

# Counting stops here: beyond it, a list does not say how many there are.
COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of a list is wanted."""

    limit: int = 20
    offset: int = 0
    # Go on after the entry with this id.
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of a list; `total` is known for short lists only, `next_after` when there is more."""

    rows: Sequence[Any]
    total: int | None = None
    next_after: str | None = None


async def read_page(
    transaction: Transaction, statement: Select[Any], key: ColumnElement[Any], page: PageRequest
) -> Listing:
    """One page of `statement`, newest first by `key`, which is selected as `id`."""
    total = None if page.after is not None else await _count(transaction, statement)
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


async def _count(transaction: Transaction, statement: Select[Any]) -> int | None:
    found = statement.with_only_columns(literal(1), maintain_column_froms=True).limit(COUNT_LIMIT + 1).subquery()
    row = await transaction.row(select(func.count()).select_from(found))
    return None if row is None or row[0] > COUNT_LIMIT else int(row[0])
