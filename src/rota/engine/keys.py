"""create_key, revoke_key: who may call the API."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from rota.domain.access import EVERY_NAMESPACE
from rota.domain.api_key import NOISE_BYTES, SHOWN_CHARACTERS, NewKey, check_new_key, hash_secret, write_key
from rota.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from rota.engine.core import Core
from rota.store import api_keys
from rota.store.api_keys import KeyRow
from rota.store.database import Transaction


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key: the only time that it is seen."""

    id: str
    key: str

    def __repr__(self) -> str:
        return f"CreatedKey({self.id})"


async def create_key(core: Core, transaction: Transaction, wanted: NewKey, created_by: str) -> CreatedKey:
    """Makes a key. Raises InvalidInput, or Conflict if a key that is not revoked has its name."""
    errors = check_new_key(wanted)
    if errors:
        raise InvalidInput.of(errors)
    (key_id,) = core.new_ids(1)
    key = write_key(secrets.token_bytes(NOISE_BYTES))
    row = KeyRow(
        key_id,
        wanted.name,
        key[:SHOWN_CHARACTERS],
        hash_secret(key),
        wanted.role,
        wanted.namespaces,
        created_by,
        wanted.expires_in_seconds,
    )
    if not await api_keys.insert_key(transaction, row):
        reason = "a key of this name exists: revoke it first, or choose another name"
        raise Conflict(f"name: {reason}", errors=[FieldError("name", reason)])
    return CreatedKey(key_id, key)


async def revoke_key(_core: Core, transaction: Transaction, reference: str) -> str:
    """Ends a key, named by its id or name; its id. The last one that can make others is kept."""
    row = await api_keys.read_key(transaction, reference)
    if row is None:
        raise NotFound(f"there is no API key {reference[:200]}")
    if row.revoked_at is not None:
        raise Conflict(f"API key {row.name} is revoked already")
    admins = await api_keys.read_admins(transaction, locks=True)
    usable = [admin.id for admin in admins if admin.is_usable and EVERY_NAMESPACE in admin.namespaces]
    if usable == [row.id]:
        raise Conflict(
            f"API key {row.name} is the last admin key for every namespace: make another one before you revoke it"
        )
    if not await api_keys.revoke_key(transaction, row.id):
        raise Conflict(f"API key {row.name} is revoked already")
    return str(row.id)
