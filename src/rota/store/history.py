"""The record of every change of state, written in the transaction that makes the change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import String, Text, insert, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, batch
from rota.store.encoding import encode_rows
from rota.store.tables import state_history
from rota.store.wakeups import Topic
from rota.store.writers import has_begun


class Change(NamedTuple):
    """One change of state."""

    entity_type: str
    entity_id: str
    root_id: str
    namespace: str
    old_state: str | None
    new_state: str
    # JSON text.
    details: str | None = None


_rows = batch(
    "changes",
    entity_type=String(20),
    entity_id=Id(),
    root_id=Id(),
    namespace=String(200),
    old_state=String(20),
    new_state=String(20),
    metadata=Text(),
)
_INSERT = insert(state_history).from_select(
    ["entity_type", "entity_id", "root_id", "namespace", "old_state", "new_state", "metadata", "changed_at"],
    # Whoever reads the history as an outbox must be able to see from which number on somebody may still be writing.
    select(*_rows.c, NOW).where(has_begun()),
)


async def record_changes(transaction: Transaction, changes: Sequence[Change]) -> None:
    """Appends changes in their order."""
    if not changes:
        return
    await transaction.run(_INSERT, {"changes": encode_rows(changes)})
    transaction.wake(Topic.HISTORY)
