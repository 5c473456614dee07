"""Statements on idempotency keys: who came first, and what it was answered."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Integer, String, bindparam, delete, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Json, insert_new
from rota.store.tables_service import idempotency_keys

_k = idempotency_keys.c
_namespace = bindparam("key_namespace", type_=String())
_key = bindparam("wanted_key", type_=String())
_is_it = (_k.namespace == _namespace, _k.key == _key)
_TAKE = insert_new(
    idempotency_keys,
    {
        "namespace": _namespace,
        "key": _key,
        "request_hash": bindparam("request_hash", type_=String()),
        "created_at": NOW,
    },
).returning(_k.key)
_READ = select(_k.request_hash, _k.response_status, _k.response_body).where(*_is_it)
_answer = bindparam("answer", type_=Json())
_KEEP = (
    update(idempotency_keys)
    .where(*_is_it)
    .values(response_status=bindparam("status", type_=Integer()), response_body=_answer)
)
_DROP = delete(idempotency_keys).where(*_is_it, _k.response_status.is_(None))


class Kept(NamedTuple):
    """What is known of an earlier request with this key; without a status while it is being served."""

    request_hash: str
    status: int | None
    answer: dict[str, Any] | None


async def take(transaction: Transaction, namespace: str, key: str, request_hash: str) -> Kept | None:
    """Takes a key for a request; what is known of it if it was taken before."""
    wanted = {"key_namespace": namespace, "wanted_key": key}
    if await transaction.row(_TAKE, {**wanted, "request_hash": request_hash}) is not None:
        return None
    return await find(transaction, namespace, key)


async def find(transaction: Transaction, namespace: str, key: str) -> Kept | None:
    row = await transaction.row(_READ, {"key_namespace": namespace, "wanted_key": key})
    return None if row is None else Kept(*row)


async def keep(transaction: Transaction, namespace: str, key: str, *, status: int, answer: dict[str, Any]) -> None:
    """Keeps what the request was answered."""
    await transaction.run(_KEEP, {"key_namespace": namespace, "wanted_key": key, "status": status, "answer": answer})


async def drop(transaction: Transaction, namespace: str, key: str) -> None:
    """Gives back the key of a request that did nothing."""
    await transaction.run(_DROP, {"key_namespace": namespace, "wanted_key": key})
