"""Statements on secrets, which are encrypted before they come here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Integer, String, Text, and_, bindparam, delete, or_, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, batch, insert_new
from rota.store.encoding import encode_rows
from rota.store.tables_service import secrets

_s = secrets.c
_named = (
    _s.namespace == bindparam("of_namespace", type_=String()),
    _s.name == bindparam("of_name", type_=String()),
)


class SealedRow(NamedTuple):
    """A secret as it is stored."""

    namespace: str
    name: str
    key_id: str
    ciphertext: str


_content = {
    "key_id": bindparam("new_key_id", type_=String()),
    "ciphertext": bindparam("new_ciphertext", type_=Text()),
}
_CHANGE = update(secrets).values(**_content, updated_at=NOW).where(*_named).returning(_s.name)
_CREATE = insert_new(
    secrets,
    {
        "namespace": bindparam("of_namespace", type_=String()),
        "name": bindparam("of_name", type_=String()),
        **_content,
        "created_at": NOW,
        "updated_at": NOW,
    },
).returning(_s.name)


async def put_secret(transaction: Transaction, secret: SealedRow) -> bool:
    """Makes the secret be so, whether it exists or not; True if it is new."""
    values = {
        "of_namespace": secret.namespace,
        "of_name": secret.name,
        "new_key_id": secret.key_id,
        "new_ciphertext": secret.ciphertext,
    }
    if await transaction.row(_CHANGE, values) is not None:
        return False
    if await transaction.row(_CREATE, values) is not None:
        return True
    # Somebody else was faster; the later one counts.
    await transaction.row(_CHANGE, values)
    return False


_wanted = batch("wanted_secrets", namespace=String(), name=String())
_READ = select(_s.namespace, _s.name, _s.key_id, _s.ciphertext).join_from(
    _wanted, secrets, and_(_s.namespace == _wanted.c.namespace, _s.name == _wanted.c.name)
)


async def read_sealed(transaction: Transaction, places: Sequence[tuple[str, str]]) -> list[SealedRow]:
    """Secrets by namespace and name; those that do not exist are left out."""
    rows = await transaction.rows(_READ, {"wanted_secrets": encode_rows(places)})
    return [SealedRow(*row) for row in rows]


_SHOWN = select(_s.namespace, _s.name, _s.key_id, _s.created_at, _s.updated_at)
_LIST = _SHOWN.where(_s.namespace == bindparam("of_namespace", type_=String())).order_by(_s.name)
_ONE = _SHOWN.where(*_named)


async def list_secrets(transaction: Transaction, namespace: str) -> Sequence[Any]:
    """The secrets of a namespace by name, without what they are."""
    return await transaction.rows(_LIST, {"of_namespace": namespace})


async def read_secret(transaction: Transaction, namespace: str, name: str) -> Any | None:
    """One secret, without what it is."""
    return await transaction.row(_ONE, {"of_namespace": namespace, "of_name": name})


_DELETE = delete(secrets).where(*_named).returning(_s.name)


async def delete_secret(transaction: Transaction, namespace: str, name: str) -> bool:
    """True if there was one."""
    return await transaction.row(_DELETE, {"of_namespace": namespace, "of_name": name}) is not None


_after_namespace = bindparam("after_namespace", type_=String())
_STALE = (
    select(_s.namespace, _s.name, _s.key_id, _s.ciphertext)
    .where(
        _s.key_id != bindparam("of_key", type_=String()),
        or_(
            _s.namespace > _after_namespace,
            and_(_s.namespace == _after_namespace, _s.name > bindparam("after_name", type_=String())),
        ),
    )
    .order_by(_s.namespace, _s.name)
    .limit(bindparam("at_most", type_=Integer()))
    .with_for_update()
)


async def find_stale(transaction: Transaction, key_id: str, *, after: tuple[str, str], limit: int) -> list[SealedRow]:
    """Secrets that another key than this one opens, held until the commit."""
    rows = await transaction.rows(
        _STALE, {"of_key": key_id, "after_namespace": after[0], "after_name": after[1], "at_most": limit}
    )
    return [SealedRow(*row) for row in rows]


_renewed = batch("renewed_secrets", namespace=String(), name=String(), key_id=String(), ciphertext=Text())
_RESEAL = (
    update(secrets)
    .values(key_id=_renewed.c.key_id, ciphertext=_renewed.c.ciphertext)
    .where(_s.namespace == _renewed.c.namespace, _s.name == _renewed.c.name)
)


async def reseal(transaction: Transaction, rows: Sequence[SealedRow]) -> None:
    """The same values, encrypted anew."""
    if rows:
        await transaction.run(_RESEAL, {"renewed_secrets": encode_rows(rows)})
