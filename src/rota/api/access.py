"""Who is calling: resolved once for each request, before its body is read."""

from __future__ import annotations

import hmac
import ipaddress
from contextvars import ContextVar
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from rota.api.keyring import KeyRing
from rota.api.options import AccessOptions
from rota.api.permissions import Need
from rota.api.rates import RateLimit, name_address
from rota.api.sessions import COOKIE, CSRF_HEADER, Sessions, is_csrf_token
from rota.domain.access import Permission, Principal, Role, roles_with
from rota.domain.api_key import KEY_PREFIX, describe_namespaces, hash_secret
from rota.domain.errors import Forbidden, NotFound, Unauthenticated
from rota.store.database import Database

# On a server that is open to this machine only, where nobody has to say who they are.
LOCAL = Principal("local", Role.ADMIN)
WHO = "send a key: Authorization: Bearer KEY"
UNKNOWN = "this key is not known here, or it has expired or was revoked"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Wrong keys of one address: so many at once, and then one a second.
FAILURE_BURST = 20.0

_caller: ContextVar[Principal] = ContextVar("caller")
_required_namespace: ContextVar[str] = ContextVar("required_namespace", default="")


class Access:
    """Lets callers in or refuses them."""

    def __init__(self, options: AccessOptions, database: Database) -> None:
        self._options = options
        self.keys = KeyRing(database, options.remember_seconds)
        self.sessions = Sessions(database)
        # Whoever shows the key that the server was started with.
        self._shared = Principal("token", Role.ADMIN, kind="token", key_hash=hash_secret(options.token))
        self._by_caller = RateLimit(options.rate_limit)
        self._by_address = RateLimit(options.rate_limit)
        self._failures = RateLimit(1.0 if options.rate_limit else 0.0, FAILURE_BURST)

    async def admit(self, connection: HTTPConnection, need: Need) -> Principal | None:
        """The caller, who may do this; None where nobody needs to be known. Raises what the caller is told instead.

        A WebSocket may show a ticket as `?ticket=`, which is used up by that.
        """
        _required_namespace.set("")
        address = name_address(connection.client.host if connection.client else "")
        if need.permission is not Permission.WORK:
            self._by_address.check(address)
        if need.permission is Permission.OPEN:
            return None
        principal = await self._identify_once(connection, address)
        _check(principal, need)
        if need.permission is not Permission.WORK:
            self._by_caller.check(f"{principal.kind}:{principal.name}")
        _caller.set(principal)
        return principal

    async def is_still_good(self, principal: Principal) -> bool:
        """Whether the key by which somebody was let in would still be."""
        return await self._confirm(principal) is not None

    async def sign_in(self, connection: HTTPConnection, key: str) -> Principal:
        """Whose key this is, for a session to be opened with it."""
        address = name_address(connection.client.host if connection.client else "")
        self._failures.check(address, cost=0)
        found = await self._find_bearer(key)
        if found is None:
            self._failures.check(address)
            raise Unauthenticated(UNKNOWN)
        _caller.set(found)
        return found

    async def _identify_once(self, connection: HTTPConnection, address: str) -> Principal:
        self._failures.check(address, cost=0)
        try:
            return await self._identify(connection)
        except Unauthenticated:
            self._failures.check(address)
            raise

    async def _identify(self, connection: HTTPConnection) -> Principal:
        shown = _read_bearer(connection)
        found = None if shown is None else await self._find_bearer(shown)
        if found is None and shown is None:
            found = await self._find_browser(connection)
        if found is not None:
            return found
        # What is not even meant as a key, such as the token of a worker, says nothing here.
        if not (shown or "").startswith(KEY_PREFIX) and await self._is_open():
            _refuse_strangers(connection, needs_loopback=True)
            return LOCAL
        raise Unauthenticated(WHO if shown is None else UNKNOWN)

    async def _find_bearer(self, shown: str) -> Principal | None:
        shown_hash = hash_secret(shown)
        if self._options.token and hmac.compare_digest(shown_hash, self._shared.key_hash or ""):
            return self._shared
        if shown.startswith(KEY_PREFIX):
            return await self.keys.find(shown_hash)
        return None if self._options.issuer is None else await self._options.issuer.find(shown)

    async def _find_browser(self, connection: HTTPConnection) -> Principal | None:
        """What a browser shows, which sends cookies by itself: so the page that asks must be ours."""
        is_socket = connection.scope["type"] == "websocket"
        ticket = connection.query_params.get("ticket") if is_socket else None
        if ticket is not None:
            return await self._confirm(await self.sessions.redeem(ticket))
        cookie = connection.cookies.get(COOKIE)
        if cookie is None:
            return None
        principal = await self._confirm(await self.sessions.find(cookie))
        if principal is None:
            return None
        _refuse_strangers(connection)
        is_safe = is_socket or connection.scope["method"] in SAFE_METHODS
        if not is_safe and not is_csrf_token(connection.headers.get(CSRF_HEADER, ""), cookie):
            raise Forbidden(f"send the session's csrf_token in the header {CSRF_HEADER}", code="csrf")
        return principal

    async def _confirm(self, kept: Principal | None) -> Principal | None:
        """Whoever was signed in, if what they showed then is still good."""
        if kept is None:
            return None
        if kept.kind == LOCAL.kind:
            return LOCAL if await self._is_open() else None
        if kept.key_hash is None:
            return kept if self._options.issuer is not None else None
        if self._options.token and hmac.compare_digest(kept.key_hash, self._shared.key_hash or ""):
            return self._shared
        return await self.keys.find(kept.key_hash)

    async def _is_open(self) -> bool:
        """Whether nobody has to show a key: only this machine reaches the server, and nobody has asked for keys."""
        options = self._options
        if not options.is_open or options.token or options.issuer is not None:
            return False
        return not await self.keys.has_admin()


def get_caller() -> Principal:
    """Who makes the request that is being served."""
    return _caller.get()


def require_namespace(namespace: str) -> str:
    """The namespace, if the caller may know of it."""
    if not get_caller().sees(namespace):
        raise NotFound(f"there is no namespace {namespace}, or this key may not see it")
    _required_namespace.set(namespace)
    return namespace


def get_required_namespace() -> str:
    """The namespace that the request turned out to concern, or nothing."""
    return _required_namespace.get()


def _read_bearer(connection: HTTPConnection) -> str | None:
    scheme, _, shown = connection.headers.get("authorization", "").partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else None


def _refuse_strangers(connection: HTTPConnection, *, needs_loopback: bool = False) -> None:
    """Refuses pages from elsewhere, which a browser lets ask with what it knows of us."""
    host = connection.headers.get("host", "")
    origin = connection.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Forbidden("pages from elsewhere may not ask here", code="cross_origin")
    # A name that somebody else lets point at this machine is not this machine.
    if needs_loopback and not _is_this_machine(host):
        raise Forbidden(
            f"without keys this server answers only as this machine, not as {host[:100]}: make an admin key",
            code="cross_origin",
        )


def _is_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _check(principal: Principal, need: Need) -> None:
    if not principal.may(need.permission):
        allowed = " or ".join(roles_with(need.permission))
        raise Forbidden(f"{principal.name} is {principal.role}: this takes a key with the role {allowed}")
    if need.is_everywhere and not principal.is_everywhere:
        where = describe_namespaces(principal.namespaces)
        raise Forbidden(f"{principal.name} is for {where}: this takes a key for every namespace")
