"""Who is calling: resolved once for each request, before its body is read."""

from __future__ import annotations

import hashlib
import hmac
from contextvars import ContextVar

from starlette.requests import HTTPConnection

from rota.api.options import AccessOptions
from rota.api.permissions import Need
from rota.domain.access import Permission, Principal, Role, roles_with
from rota.domain.errors import Forbidden, NotFound, Unauthenticated

# On a server that is open to this machine only, where nobody has to say who they are.
LOCAL = Principal("local", Role.ADMIN)
# Whoever shows the key that the server was started with.
SHARED = Principal("token", Role.ADMIN, kind="token")
WHO = "send a key: Authorization: Bearer KEY"

_caller: ContextVar[Principal] = ContextVar("caller")


class Access:
    """Lets callers in or refuses them."""

    def __init__(self, options: AccessOptions) -> None:
        self._options = options
        self._token_hash = _hash(options.token) if options.token else None

    async def admit(self, connection: HTTPConnection, need: Need) -> Principal | None:
        """The caller, who may do this; None where nobody needs to be known. Raises what the caller is told instead."""
        if need.permission is Permission.OPEN:
            return None
        principal = await self._identify(connection)
        _check(principal, need)
        _caller.set(principal)
        return principal

    async def _identify(self, connection: HTTPConnection) -> Principal:
        if self._options.is_open and self._token_hash is None:
            return LOCAL
        scheme, _, shown = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or self._token_hash is None:
            raise Unauthenticated(WHO)
        if not hmac.compare_digest(_hash(shown.strip()), self._token_hash):
            raise Unauthenticated("this key is not known here")
        return SHARED


def get_caller() -> Principal:
    """Who makes the request that is being served."""
    return _caller.get()


def require_namespace(namespace: str) -> str:
    """The namespace, if the caller may know of it."""
    if not get_caller().sees(namespace):
        raise NotFound(f"there is no namespace {namespace}, or this key may not see it")
    return namespace


def _check(principal: Principal, need: Need) -> None:
    if not principal.may(need.permission):
        allowed = " or ".join(roles_with(need.permission))
        raise Forbidden(f"{principal.name} is {principal.role}: this takes a key with the role {allowed}")
    if need.is_everywhere and not principal.is_everywhere:
        raise Forbidden(
            f"{principal.name} is for {', '.join(principal.namespaces)}: this takes a key for every namespace"
        )


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
