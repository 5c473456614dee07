"""Statements on the audit log: who changed what, from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Float, Integer, String, bindparam, delete, func, insert, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, add_seconds, batch
from rota.store.encoding import clean_text, encode_rows
from rota.store.tables_service import audit_log

_a = audit_log.c
# Longer than a page, shorter than what one statement should delete.
PRUNED_AT_ONCE = 1_000


class Entry(NamedTuple):
    """One change; the namespace is empty when it concerns all of them."""

    namespace: str
    actor: str
    actor_kind: str
    address: str
    action: str
    entity_type: str
    entity_id: str


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are wanted: those before `before`, the newest first."""

    namespace: str | None = None
    actor: str | None = None
    action: str | None = None
    entity_id: str | None = None
    before: int | None = None
    limit: int = 20


_WIDTHS = {
    **dict.fromkeys(("namespace", "actor", "entity_id"), 200),
    **dict.fromkeys(("address", "action"), 100),
    "entity_type": 40,
    "actor_kind": 20,
}
_rows = batch("entries", **{name: String(_WIDTHS[name]) for name in Entry._fields})
_INSERT = insert(audit_log).from_select([*Entry._fields, "created_at"], select(*_rows.c, NOW))


async def insert_entries(transaction: Transaction, entries: Sequence[Entry]) -> None:
    """Appends entries in their order, each field cut to its column."""
    rows = [
        [clean_text(field)[: _WIDTHS[name]] for name, field in zip(Entry._fields, entry, strict=True)]
        for entry in entries
    ]
    await transaction.run(_INSERT, {"entries": encode_rows(rows)})


_READ = select(
    _a.seq, _a.namespace, _a.actor, _a.actor_kind, _a.address, _a.action, _a.entity_type, _a.entity_id, _a.created_at
)


async def list_entries(transaction: Transaction, wanted: AuditFilter) -> Sequence[Any]:
    """Entries, the newest first."""
    asked = {name: getattr(wanted, name) for name in ("namespace", "actor", "action", "entity_id")}
    statement = _READ.where(*(_a[name] == value for name, value in asked.items() if value is not None))
    if wanted.before is not None:
        statement = statement.where(_a.seq < wanted.before)
    return await transaction.rows(statement.order_by(_a.seq.desc()).limit(wanted.limit))


_first = select(func.min(_a.seq)).scalar_subquery()
_PRUNE = delete(audit_log).where(
    # The oldest stand together at the beginning: nothing else is looked at.
    _a.seq < _first + bindparam("at_most", type_=Integer()),
    _a.created_at < add_seconds(NOW, bindparam("minus_seconds", type_=Float())),
)


async def delete_old(transaction: Transaction, *, retention_seconds: float) -> int:
    """Deletes some of the entries that are older than their retention; how many."""
    return await transaction.run(_PRUNE, {"at_most": PRUNED_AT_ONCE, "minus_seconds": -retention_seconds})
