"""Statements on browsers that are signed in, and on tickets. Both are found by the hash of what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Boolean, Float, String, bindparam, delete, insert, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, Json, add_seconds
from rota.store.tables_service import sessions

_s = sessions.c
_INSERT = (
    insert(sessions)
    .values(
        token_hash=bindparam("new_hash", type_=String()),
        is_ticket=bindparam("new_is_ticket", type_=Boolean()),
        principal=bindparam("new_principal", type_=Json()),
        key_hash=bindparam("new_key_hash", type_=String()),
        created_at=NOW,
        expires_at=add_seconds(NOW, bindparam("lifetime", type_=Float())),
    )
    .returning(_s.expires_at)
)


async def insert_session(
    transaction: Transaction,
    token_hash: str,
    principal: Mapping[str, Any],
    *,
    key_hash: str | None,
    lifetime_seconds: float,
    is_ticket: bool,
) -> Any:
    """Keeps a session or a ticket; when it ends."""
    values = {
        "new_hash": token_hash,
        "new_is_ticket": is_ticket,
        "new_principal": dict(principal),
        "new_key_hash": key_hash,
        "lifetime": lifetime_seconds,
    }
    row = await transaction.row(_INSERT, values)
    return None if row is None else row.expires_at


_is_it = _s.token_hash == bindparam("of_hash", type_=String())
_FIND = select(_s.principal, _s.key_hash, _s.expires_at).where(_is_it, ~_s.is_ticket, _s.expires_at > NOW)


async def find_session(transaction: Transaction, token_hash: str) -> Any | None:
    """The session of this hash, if it has not ended."""
    return await transaction.row(_FIND, {"of_hash": token_hash})


_REDEEM = (
    delete(sessions)
    .where(_is_it, _s.is_ticket, _s.expires_at > NOW)
    .returning(_s.principal, _s.key_hash, _s.expires_at)
)


async def redeem_ticket(transaction: Transaction, token_hash: str) -> Any | None:
    """Takes a ticket, which then is gone: of several at once, one gets it."""
    return await transaction.row(_REDEEM, {"of_hash": token_hash})


_END = delete(sessions).where(_is_it)


async def end_session(transaction: Transaction, token_hash: str) -> None:
    await transaction.run(_END, {"of_hash": token_hash})


_DELETE_ENDED = delete(sessions).where(_s.expires_at <= NOW)


async def delete_ended(transaction: Transaction) -> int:
    """Deletes what has ended by itself."""
    return await transaction.run(_DELETE_ENDED)
