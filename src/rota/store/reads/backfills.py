"""Backfills and their progress, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import String, bindparam, func, select

from rota.store.backfills import BackfillRow
from rota.store.database import Transaction
from rota.store.dialect import Id, batch, within
from rota.store.encoding import encode_rows
from rota.store.reads.pages import Listing, PageRequest, read_page
from rota.store.tables import workflow_runs
from rota.store.tables_time import backfills

_b = backfills.c
_r = workflow_runs.c
_COLUMNS = [_b[name] for name in BackfillRow._fields]
_ONE = select(*_COLUMNS).where(
    _b.id == bindparam("wanted_id", type_=Id()), _b.namespace == bindparam("wanted_namespace", type_=String())
)


async def read_backfill(transaction: Transaction, namespace: str, backfill_id: str) -> Any | None:
    return await transaction.row(_ONE, {"wanted_id": backfill_id, "wanted_namespace": namespace})


async def list_backfills(transaction: Transaction, workflow_id: str, page: PageRequest) -> Listing:
    """The backfills of a workflow, the newest first."""
    return await read_page(transaction, select(*_COLUMNS).where(_b.workflow_id == workflow_id), _b.id, page)


_asked = batch("asked_backfills", id=Id())
_COUNTS = (
    select(_r.backfill_id, _r.status, func.count())
    .where(within(_r.backfill_id, select(_asked.c.id).scalar_subquery()), _r.backfill_id.is_not(None))
    .group_by(_r.backfill_id, _r.status)
)


async def count_by_status(transaction: Transaction, backfill_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """How many runs of each backfill are in which state."""
    found: dict[str, dict[str, int]] = {backfill_id: {} for backfill_id in backfill_ids}
    parameters = {"asked_backfills": encode_rows([(item,) for item in backfill_ids])}
    for backfill_id, status, count in await transaction.rows(_COUNTS, parameters):
        found[backfill_id][status] = count
    return found
