"""Statements for runs that repeat a part of another one, and take the rest over from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import or_, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, among, batch, constant
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs

_t = task_runs.c


class TakenOver(NamedTuple):
    """A task run that has the result of an older one."""

    id: str
    run_id: str
    namespace: str
    task_id: str
    status: str
    is_teardown: bool


_pairs = batch("taken_over", id=Id(), source_id=Id())
_old = task_runs.alias("old")
_results = (
    select(_pairs.c.id, _old.c.status, _old.c.output, _old.c.error_type, _old.c.error)
    .join(_old, _old.c.id == _pairs.c.source_id)
    .where(among(_old.c.id, select(_pairs.c.source_id).scalar_subquery()))
    .cte("results")
    .prefix_with("MATERIALIZED")
)
_TAKE_OVER = (
    update(task_runs)
    .values(
        status=_results.c.status,
        output=_results.c.output,
        error_type=_results.c.error_type,
        error=_results.c.error,
        finished_at=NOW,
        claim_rank=None,
        queued_at=None,
    )
    .where(
        _t.id == _results.c.id,
        among(_t.id, select(_results.c.id).scalar_subquery()),
        or_(_t.status == constant("pending"), _t.status == constant("queued")),
    )
    .returning(*(_t[name] for name in TakenOver._fields))
)


async def take_over(transaction: Transaction, pairs: Sequence[tuple[str, str]]) -> list[TakenOver]:
    """Ends (new task run id, old one) as the old one ended, with its output. The new ones are of this transaction."""
    return [TakenOver(*row) for row in await transaction.rows(_TAKE_OVER, {"taken_over": encode_rows(pairs)})]
