"""Statements on what people write on runs: labels, by which runs are found, and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import String, Text, bindparam, delete, insert, select, update

from rota.store.database import Transaction
from rota.store.dialect import Id, Json, batch
from rota.store.encoding import encode_rows
from rota.store.tables import workflow_runs
from rota.store.tables_links import run_labels

_r = workflow_runs.c
_run = bindparam("run", type_=Id())
_new = batch("new_labels", run_id=Id(), namespace=String(200), key=String(63), value=String(200))
_INSERT = insert(run_labels).from_select(list(_new.c.keys()), select(*_new.c))


async def insert_labels(transaction: Transaction, rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Writes (run id, namespace, key, value)."""
    await transaction.run(_INSERT, {"new_labels": encode_rows(rows)})


_LOCK = select(_r.id, _r.namespace, _r.status, _r.note, _r.labels).where(_r.id == _run).with_for_update(key_share=True)


async def lock_annotations(transaction: Transaction, run_id: str) -> Any | None:
    """A run's note and labels, held until the commit."""
    return await transaction.row(_LOCK, {"run": run_id})


_ANNOTATE = (
    update(workflow_runs)
    .values(
        note=bindparam("new_note", type_=Text()), labels=bindparam("new_labels", type_=Json()), version=_r.version + 1
    )
    .where(_r.id == _run)
)
_FORGET = delete(run_labels).where(run_labels.c.run_id == _run)


async def annotate(
    transaction: Transaction, run_id: str, namespace: str, *, note: str, labels: Mapping[str, str]
) -> None:
    """Replaces a run's note and labels."""
    await transaction.run(_ANNOTATE, {"run": run_id, "new_note": note, "new_labels": dict(labels) or None})
    await transaction.run(_FORGET, {"run": run_id})
    if labels:
        await insert_labels(transaction, [(run_id, namespace, key, value) for key, value in labels.items()])
