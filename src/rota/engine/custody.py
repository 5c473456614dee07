"""The verbs on what opens doors: API keys and secrets. A part of the facade."""

from __future__ import annotations

from rota.domain.api_key import NewKey
from rota.engine import keys, secrets
from rota.engine.core import Core
from rota.engine.keys import CreatedKey
from rota.engine.secrets import FIRST_PLACE, RotateReport, SecretPlace
from rota.store.database import Database


class Custody:
    """Gives each verb its transaction."""

    def __init__(self, database: Database, core: Core) -> None:
        self._database = database
        self._core = core

    async def create_key(self, wanted: NewKey, *, created_by: str) -> CreatedKey:
        """Makes an API key."""
        return await self._database.transact(lambda tx: keys.create_key(self._core, tx, wanted, created_by))

    async def revoke_key(self, reference: str) -> str:
        """Ends an API key, unless nobody could make another one then."""
        return await self._database.transact(lambda tx: keys.revoke_key(self._core, tx, reference))

    async def put_secret(self, namespace: str, name: str, value: str) -> bool:
        """Keeps a secret, new or in place of the old one; True if it is new."""
        return await self._database.transact(lambda tx: secrets.put_secret(self._core, tx, namespace, name, value))

    async def rotate_secrets(self, after: SecretPlace = FIRST_PLACE) -> RotateReport:
        """Encrypts one batch of secrets anew, of those that are not encrypted with the first key."""
        return await self._database.transact(lambda tx: secrets.rotate_secrets(self._core, tx, after))
