"""Who is calling: resolved once for each request, before its body is read."""

from __future__ import annotations

import hmac
from contextvars import ContextVar

from starlette.requests import HTTPConnection

from rota.api.keyring import KeyRing
from rota.api.options import AccessOptions
from rota.api.permissions import Need
from rota.domain.access import Permission, Principal, Role, roles_with
from rota.domain.api_key import KEY_PREFIX, describe_namespaces, hash_secret
from rota.domain.errors import Forbidden, NotFound, Unauthenticated
from rota.store.database import Database

# On a server that is open to this machine only, where nobody has to say who they are.
LOCAL = Principal("local", Role.ADMIN)
WHO = "send a key: Authorization: Bearer KEY"
UNKNOWN = "this key is not known here, or it has expired or was revoked"

_caller: ContextVar[Principal] = ContextVar("caller")


class Access:
    """Lets callers in or refuses them."""

    def __init__(self, options: AccessOptions, database: Database) -> None:
        self._options = options
        self.keys = KeyRing(database, options.remember_seconds)
        # Whoever shows the key that the server was started with.
        self._shared = Principal("token", Role.ADMIN, kind="token", key_hash=hash_secret(options.token))

    async def admit(self, connection: HTTPConnection, need: Need) -> Principal | None:
        """The caller, who may do this; None where nobody needs to be known. Raises what the caller is told instead."""
        if need.permission is Permission.OPEN:
            return None
        principal = await self._identify(connection)
        _check(principal, need)
        _caller.set(principal)
        return principal

    async def is_still_good(self, principal: Principal) -> bool:
        """Whether the key by which somebody was let in would still be."""
        if principal.key_hash is None or principal.kind == self._shared.kind:
            return True
        return await self.keys.find(principal.key_hash) is not None

    async def _identify(self, connection: HTTPConnection) -> Principal:
        shown = _read_bearer(connection)
        found = None if shown is None else await self._find_bearer(shown)
        if found is not None:
            return found
        # What is not even meant as a key, such as the token of a worker, says nothing here.
        if not (shown or "").startswith(KEY_PREFIX) and await self._is_open():
            return LOCAL
        raise Unauthenticated(WHO if shown is None else UNKNOWN)

    async def _find_bearer(self, shown: str) -> Principal | None:
        shown_hash = hash_secret(shown)
        if self._options.token and hmac.compare_digest(shown_hash, self._shared.key_hash or ""):
            return self._shared
        return await self.keys.find(shown_hash) if shown.startswith(KEY_PREFIX) else None

    async def _is_open(self) -> bool:
        """Whether nobody has to show a key: only this machine reaches the server, and nobody has asked for keys."""
        return self._options.is_open and not self._options.token and not await self.keys.has_admin()


def get_caller() -> Principal:
    """Who makes the request that is being served."""
    return _caller.get()


def require_namespace(namespace: str) -> str:
    """The namespace, if the caller may know of it."""
    if not get_caller().sees(namespace):
        raise NotFound(f"there is no namespace {namespace}, or this key may not see it")
    return namespace


def _read_bearer(connection: HTTPConnection) -> str | None:
    scheme, _, shown = connection.headers.get("authorization", "").partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else None


def _check(principal: Principal, need: Need) -> None:
    if not principal.may(need.permission):
        allowed = " or ".join(roles_with(need.permission))
        raise Forbidden(f"{principal.name} is {principal.role}: this takes a key with the role {allowed}")
    if need.is_everywhere and not principal.is_everywhere:
        where = describe_namespaces(principal.namespaces)
        raise Forbidden(f"{principal.name} is for {where}: this takes a key for every namespace")
