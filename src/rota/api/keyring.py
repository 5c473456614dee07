"""The API keys that are shown to this node: looked up once in a few seconds, not once a request."""

from __future__ import annotations

import time
from typing import NamedTuple

from rota.domain.access import EVERY_NAMESPACE, Principal, Role
from rota.engine.core import Memory
from rota.store import api_keys
from rota.store.database import Database

REMEMBERED = 10_000
# Apart from the others, so that whoever tries keys at random displaces none that are good.
REMEMBERED_UNKNOWN = 1_000


class _Found(NamedTuple):
    """What a key stands for, and until when that may be believed."""

    principal: Principal | None
    until: float


class KeyRing:
    """Finds who shows a key."""

    def __init__(self, database: Database, remember_seconds: float) -> None:
        self._database = database
        self._remember_seconds = remember_seconds
        self.forget()

    def forget(self) -> None:
        """Looks again from now on."""
        self._known: Memory[str, _Found] = Memory(REMEMBERED)
        self._unknown: Memory[str, _Found] = Memory(REMEMBERED_UNKNOWN)
        self._has_admin = False
        self._has_admin_until = 0.0

    async def find(self, key_hash: str) -> Principal | None:
        """Whose key this is, if it is good."""
        known = self._known.get(key_hash) or self._unknown.get(key_hash)
        if known is not None and time.monotonic() < known.until:
            return known.principal
        looked_at = time.monotonic()
        found = await self._look_up(key_hash, looked_at)
        (self._unknown if found.principal is None else self._known).put(key_hash, found)
        (self._known if found.principal is None else self._unknown).forget(key_hash)
        return found.principal

    async def _look_up(self, key_hash: str, looked_at: float) -> _Found:
        row = await self._database.read(lambda tx: api_keys.find_usable(tx, key_hash))
        if row is None:
            return _Found(None, looked_at + self._remember_seconds)
        if row.is_unnoted:
            await self._database.transact(lambda tx: api_keys.note_use(tx, row.id))
        left = (row.expires_at - row.now).total_seconds() if row.expires_at else self._remember_seconds
        principal = Principal(row.name, Role(row.role), tuple(row.namespaces), "key", key_hash)
        return _Found(principal, looked_at + min(left, self._remember_seconds))

    async def has_admin(self) -> bool:
        """Whether there is a key that may do everything, were it expired."""
        if time.monotonic() >= self._has_admin_until:
            until = time.monotonic() + self._remember_seconds
            rows = await self._database.read(api_keys.read_admins)
            self._has_admin = any(EVERY_NAMESPACE in row.namespaces for row in rows)
            self._has_admin_until = until
        return self._has_admin
