"""Tokens of an OIDC issuer: verified with its public keys, which are fetched when they are needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import jwt
import structlog

from rota.domain.access import EVERY_NAMESPACE, Principal, Role
from rota.domain.errors import Forbidden, Unavailable
from rota.domain.spec_names import check_namespace

log = structlog.get_logger(__name__)
# Signatures by public keys alone: a secret that both sides know is not for this.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
REFRESH_SECONDS = 600.0
# A token with a key that is not known is reason to look again, but not for every such token.
LEAST_REFRESH_SECONDS = 10.0
FETCH_SECONDS = 5.0
# Clocks differ.
LEEWAY_SECONDS = 30.0
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """Whose tokens are accepted, and which claims say what."""

    issuer: str
    audience: str = "rota"
    name_claim: str = "sub"
    # Dots lead into objects: `realm_access.roles`.
    role_claim: str = "rota_role"
    # The role of each group; empty: the claim has roles.
    roles: Mapping[str, str] = field(default_factory=dict)
    # Empty: everywhere.
    namespaces_claim: str = ""


class Oidc:
    """Finds who shows a token."""

    def __init__(self, options: OidcOptions) -> None:
        self._options = options
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def find(self, token: str) -> Principal | None:
        """Whose token this is, if it is good. Raises Forbidden for one that allows nothing, Unavailable if the issuer
        has to be asked for its keys and does not answer."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
        except jwt.InvalidTokenError:
            return None
        key = await self._find_key(key_id)
        claims = None if key is None else self._verify(token, key)
        return None if claims is None else self._read(claims)

    def _verify(self, token: str, key: jwt.PyJWK) -> dict[str, Any] | None:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._options.audience,
                issuer=self._options.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError as error:
            # Its kind says why; its text might repeat what was sent.
            log.info("token_refused", reason=type(error).__name__)
            return None

    def _read(self, claims: Mapping[str, Any]) -> Principal:
        name = _follow(claims, self._options.name_claim)
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise Forbidden(f"the token's claim {self._options.name_claim} is no name")
        role = self._choose_role(_follow(claims, self._options.role_claim))
        if role is None:
            raise Forbidden(f"the token's claim {self._options.role_claim} names no role that counts here")
        namespaces = self._choose_namespaces(claims)
        if not namespaces or (role is Role.WORKER and EVERY_NAMESPACE not in namespaces):
            raise Forbidden(f"the token's claim {self._options.namespaces_claim} names no namespace that will do")
        ends_at = datetime.fromtimestamp(claims["exp"] + LEEWAY_SECONDS, UTC)
        return Principal(name, role, namespaces, "jwt", expires_at=ends_at)

    def _choose_role(self, claim: Any) -> Role | None:
        """The one that may most, of those that the claim names."""
        words = _list_words(claim)
        known = [self._options.roles.get(word) for word in words] if self._options.roles else words
        found = [role for role in Role if role in known]
        return max(found, key=_RANKS.index, default=None)

    def _choose_namespaces(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        if not self._options.namespaces_claim:
            return (EVERY_NAMESPACE,)
        words = _list_words(_follow(claims, self._options.namespaces_claim))
        if EVERY_NAMESPACE in words:
            return (EVERY_NAMESPACE,)
        return tuple(word for word in words if check_namespace(word) is None)

    async def _find_key(self, key_id: str) -> jwt.PyJWK | None:
        known = self._keys.get(key_id)
        age = time.monotonic() - self._fetched_at
        if age < LEAST_REFRESH_SECONDS or (known is not None and age < REFRESH_SECONDS):
            return known
        async with self._fetching:
            # Whoever waited here finds what the first one has fetched.
            if time.monotonic() - self._fetched_at >= LEAST_REFRESH_SECONDS:
                await self._fetch()
        return self._keys.get(key_id)

    async def _fetch(self) -> None:
        try:
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS)) as session:
                found = await _get(session, f"{self._options.issuer.rstrip('/')}/.well-known/openid-configuration")
                keys = jwt.PyJWKSet.from_dict(await _get(session, str(found["jwks_uri"]))).keys
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError, TypeError, jwt.PyJWTError) as error:
            log.warning("issuer_unusable", issuer=self._options.issuer, reason=f"{type(error).__name__}: {error}"[:200])
            if not self._keys:
                raise Unavailable("the issuer of this token does not answer, so it cannot be checked now") from error
            # The keys that are known still count; the issuer is asked again after a while.
        else:
            self._keys = {key.key_id or "": key for key in keys}
        self._fetched_at = time.monotonic()


_RANKS = (Role.WORKER, Role.VIEWER, Role.OPERATOR, Role.EDITOR, Role.ADMIN)


async def _get(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(url, allow_redirects=False) as response:
        response.raise_for_status()
        document = await response.json(content_type=None)
    if not isinstance(document, dict):
        raise TypeError(f"{url} is no JSON object")
    return document


def _follow(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of this name, or, by dots, one inside of another."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _list_words(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [word for word in claim if isinstance(word, str)] if isinstance(claim, list) else []
