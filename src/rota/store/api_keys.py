"""Statements on API keys. The key itself is never stored: it is found by its hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Float, String, bindparam, case, or_, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Json, add_seconds, insert_new
from rota.store.reads.pages import Listing, PageRequest, read_page
from rota.store.tables_service import api_keys

_k = api_keys.c
USE_NOTED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key to be stored."""

    id: str
    name: str
    prefix: str
    key_hash: str
    role: str
    namespaces: Sequence[str]
    created_by: str
    expires_in_seconds: float | None


_lifetime = bindparam("lifetime", type_=Float())
_INSERT = insert_new(
    api_keys,
    {
        "id": bindparam("new_id", type_=Id()),
        "name": bindparam("new_name", type_=String()),
        "prefix": bindparam("new_prefix", type_=String()),
        "key_hash": bindparam("new_hash", type_=String()),
        "role": bindparam("new_role", type_=String()),
        "namespaces": bindparam("new_namespaces", type_=Json()),
        "created_by": bindparam("new_creator", type_=String()),
        "created_at": NOW,
        "expires_at": case((_lifetime.is_not(None), add_seconds(NOW, _lifetime))),
    },
).returning(_k.id)


async def insert_key(transaction: Transaction, key: KeyRow) -> bool:
    """Stores a key; False if its name is in use."""
    values = {
        "new_id": key.id,
        "new_name": key.name,
        "new_prefix": key.prefix,
        "new_hash": key.key_hash,
        "new_role": key.role,
        "new_namespaces": list(key.namespaces),
        "new_creator": key.created_by[:200],
        "lifetime": key.expires_in_seconds,
    }
    return await transaction.row(_INSERT, values) is not None


_is_usable = (_k.revoked_at.is_(None), or_(_k.expires_at.is_(None), _k.expires_at > NOW))
_is_unnoted = or_(_k.last_used_at.is_(None), _k.last_used_at < add_seconds(NOW, -USE_NOTED_SECONDS))
_FIND = select(
    _k.id, _k.name, _k.role, _k.namespaces, _k.expires_at, NOW.label("now"), case((_is_unnoted, 1)).label("is_unnoted")
).where(_k.key_hash == bindparam("of_hash", type_=String()), *_is_usable)


async def find_usable(transaction: Transaction, key_hash: str) -> Any | None:
    """The key of this hash, if it is neither revoked nor expired."""
    return await transaction.row(_FIND, {"of_hash": key_hash})


_is_it = _k.id == bindparam("of_key", type_=Id())
_NOTE_USE = update(api_keys).values(last_used_at=NOW).where(_is_it, _is_unnoted)


async def note_use(transaction: Transaction, key_id: str) -> None:
    """The key was used; written down once a minute at most."""
    await transaction.run(_NOTE_USE, {"of_key": key_id})


_SHOWN = select(
    _k.id,
    _k.name,
    _k.prefix,
    _k.role,
    _k.namespaces,
    _k.created_by,
    _k.created_at,
    _k.expires_at,
    _k.revoked_at,
    _k.last_used_at,
    case((_k.revoked_at.is_not(None), "revoked"), (_k.expires_at <= NOW, "expired"), else_="active").label("status"),
)


async def list_keys(transaction: Transaction, page: PageRequest, *, includes_revoked: bool) -> Listing:
    """Keys, the newest first."""
    statement = _SHOWN if includes_revoked else _SHOWN.where(_k.revoked_at.is_(None))
    return await read_page(transaction, statement, _k.id, page)


_named = or_(_is_it, (_k.name == bindparam("of_name", type_=String())) & _k.revoked_at.is_(None))
_ONE = _SHOWN.where(_named)


async def read_key(transaction: Transaction, reference: str) -> Any | None:
    """A key by its id, or by the name that it has while it is not revoked."""
    return await transaction.row(_ONE, {"of_key": reference.lower(), "of_name": reference})


_ADMINS = (
    select(_k.id, _k.namespaces, case((or_(_k.expires_at.is_(None), _k.expires_at > NOW), 1)).label("is_usable"))
    .where(_k.role == "admin", _k.revoked_at.is_(None))
    .order_by(_k.id)
)


async def read_admins(transaction: Transaction, *, locks: bool = False) -> Sequence[Any]:
    """The admin keys that are not revoked, held until the commit if asked."""
    return await transaction.rows(_ADMINS.with_for_update() if locks else _ADMINS)


_REVOKE = update(api_keys).values(revoked_at=NOW).where(_is_it, _k.revoked_at.is_(None)).returning(_k.id)


async def revoke_key(transaction: Transaction, key_id: str) -> bool:
    """The key is of no use from now on; False if it was so before."""
    return await transaction.row(_REVOKE, {"of_key": key_id}) is not None
