"""Browsers that are signed in, and tickets for one WebSocket: kept in the database, so that every node knows them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rota.domain.access import Principal, Role
from rota.domain.api_key import hash_secret
from rota.store import signed_in
from rota.store.database import Database

COOKIE = "rota_session"
CSRF_HEADER = "x-csrf-token"
SESSION_SECONDS = 12 * 3600.0
TICKET_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session or ticket, and when it ends."""

    token: str = field(repr=False)
    expires_at: datetime


class Sessions:
    """Opens, finds and ends them. What they stand for is judged by `Access`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, principal: Principal, seconds: float, *, is_ticket: bool = False) -> Opened:
        token = secrets.token_urlsafe(32)
        kept = {
            "name": principal.name,
            "role": principal.role,
            "namespaces": list(principal.namespaces),
            "kind": principal.kind,
        }
        expires_at = await self._database.transact(
            lambda tx: signed_in.insert_session(
                tx,
                hash_secret(token),
                kept,
                key_hash=principal.key_hash,
                lifetime_seconds=seconds,
                is_ticket=is_ticket,
            )
        )
        return Opened(token, expires_at)

    async def find(self, token: str) -> Principal | None:
        token_hash = hash_secret(token)
        return _read(await self._database.read(lambda tx: signed_in.find_session(tx, token_hash)))

    async def redeem(self, ticket: str) -> Principal | None:
        """Whose ticket this is; the second time it is nobody's."""
        token_hash = hash_secret(ticket)
        return _read(await self._database.transact(lambda tx: signed_in.redeem_ticket(tx, token_hash)))

    async def end(self, token: str) -> None:
        token_hash = hash_secret(token)
        await self._database.transact(lambda tx: signed_in.end_session(tx, token_hash))


def make_csrf_token(session: str) -> str:
    """What a page of ours is told and another page is not. It follows from the cookie, which no page can read."""
    return hmac.new(session.encode(), b"rota csrf", hashlib.sha256).hexdigest()


def is_csrf_token(shown: str, session: str) -> bool:
    return hmac.compare_digest(shown.encode(), make_csrf_token(session).encode())


def _read(row: Any | None) -> Principal | None:
    if row is None:
        return None
    kept = row.principal
    return Principal(
        kept["name"], Role(kept["role"]), tuple(kept["namespaces"]), kept["kind"], row.key_hash, row.expires_at
    )
