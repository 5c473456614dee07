"""Tokens of an OIDC issuer, which here is a small server of the test's own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rota.api import oidc
from rota.api.oidc import Oidc, OidcOptions
from rota.api.options import AccessOptions, ApiOptions
from tests.api.server import Answer, Server, open_server

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


@dataclass
class Issuer:
    """Publishes keys, and signs whatever it is asked to."""

    url: str = ""
    keys: dict[str, Any] = field(default_factory=lambda: {"one": RSA})
    fetched: int = 0
    is_away: bool = False

    async def describe(self, _request: web.Request) -> web.Response:
        if self.is_away:
            return web.Response(status=503)
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def publish(self, _request: web.Request) -> web.Response:
        self.fetched += 1
        found = []
        for name, key in self.keys.items():
            make: Any = jwt.algorithms.RSAAlgorithm if name == "one" else jwt.algorithms.ECAlgorithm
            found.append({**json.loads(make.to_jwk(key.public_key())), "kid": name, "use": "sig"})
        return web.json_response({"keys": found})

    def sign(self, name: str = "one", key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        given = {
            "iss": self.url,
            "aud": "rota",
            "sub": "ada",
            "exp": int(time.time()) + 600,
            "rota_role": "editor",
            **claims,
        }
        kept = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(kept, key or self.keys[name], algorithm, headers={"kid": name})


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    found = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", found.describe)
    app.router.add_get("/keys", found.publish)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@asynccontextmanager
async def _open(database_url: str, issuer: Issuer, **options: Any) -> AsyncIterator[Server]:
    access = AccessOptions(issuer=Oidc(OidcOptions(issuer.url, **options)))
    async with open_server(database_url, ApiOptions(access=access)) as server:
        yield server


async def _ask(server: Server, token: str, method: str = "GET", path: str = "/session") -> Answer:
    return await server.call(method, path, authorization=f"Bearer {token}")


async def test_a_token_says_who_is_asking(database_url: str, issuer: Issuer):
    async with _open(database_url, issuer) as server:
        assert (await server.call("GET", "/workflows")).status == 401
        answer = await _ask(server, issuer.sign())
        assert (answer.json["name"], answer.json["role"], answer.json["namespaces"]) == ("ada", "editor", ["*"])
        assert answer.json["kind"] == "jwt"
        assert (await _ask(server, issuer.sign(), path="/api-keys")).status == 403
        assert (await _ask(server, issuer.sign(rota_role="admin"), path="/api-keys")).status == 200
        assert issuer.fetched == 1
        # Keys of our own count beside it.
        assert (await server.call("GET", "/session", **await server.make_key("ci"))).json["name"] == "ci"


async def test_tokens_that_are_not_good(database_url: str, issuer: Issuer):
    now = int(time.time())
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    good = issuer.sign()
    head, body, signature = good.split(".")
    admin = base64.urlsafe_b64encode(json.dumps({"iss": issuer.url, "aud": "rota", "exp": now + 60}).encode()).decode()
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "one"}).encode()).decode().rstrip("=")
    shared = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).decode().rstrip("=")
    forged = hmac.new(public, f"{shared}.{body}".encode(), hashlib.sha256).digest()
    bad = {
        "expired": issuer.sign(exp=now - 3600),
        "without an end": issuer.sign(exp=None),
        "not valid yet": issuer.sign(nbf=now + 3600),
        "for others": issuer.sign(aud="else"),
        "for nobody": issuer.sign(aud=None),
        "of another issuer": issuer.sign(iss="http://example.org"),
        "signed by another key": issuer.sign(key=OTHER),
        "of a key that is not published": issuer.sign(name="two", key=OTHER),
        "changed": f"{head}.{admin.rstrip('=')}.{signature}",
        "without a signature": f"{none}.{body}.",
        "cut": good[:-20],
        "signed with the public key": f"{shared}.{body}.{base64.urlsafe_b64encode(forged).decode().rstrip('=')}",
        "no token": "a.b.c",
        "nothing": "x",
    }
    async with _open(database_url, issuer) as server:
        for why, token in bad.items():
            answer = await _ask(server, token)
            assert (answer.status, answer.json["code"]) == (401, "unauthenticated"), why
            assert len(token) < 10 or token not in answer.json["detail"]
        # Unknown keys make nobody fetch again and again.
        assert issuer.fetched == 1
        assert (await _ask(server, good)).status == 200


async def test_claims_become_roles_and_namespaces(database_url: str, issuer: Issuer):
    options = {
        "name_claim": "email",
        "role_claim": "realm_access.roles",
        "roles": {"rota-devs": "editor", "rota-ops": "operator", "rota-bots": "worker"},
        "namespaces_claim": "teams",
    }
    told: dict[str, Any] = {"email": "ada@example.org", "teams": ["team-a", "team-b", "Not A Name"]}
    async with _open(database_url, issuer, **options) as server:
        groups: dict[str, Any] = {"realm_access": {"roles": ["rota-ops", "others", "rota-devs"]}}
        answer = await _ask(server, issuer.sign(**told, **groups))
        assert (answer.json["name"], answer.json["role"]) == ("ada@example.org", "editor")
        assert answer.json["namespaces"] == ["team-a", "team-b"]
        wrong: list[dict[str, Any]] = [
            {**told, "realm_access": {"roles": ["admin"]}},
            {**told, "realm_access": "rota-devs"},
            {**told, "rota_role": "admin"},
            {**told, **groups, "teams": []},
            {**told, **groups, "teams": 5},
            {**told, **groups, "email": ["ada"]},
            {**told, **groups, "email": "a\u202eb"},
            {**told, "realm_access": {"roles": ["rota-bots"]}},
        ]
        for claims in wrong:
            answer = await _ask(server, issuer.sign(**claims))
            assert (answer.status, answer.json["code"]) == (403, "forbidden"), claims


async def test_a_new_key_is_fetched_when_it_is_first_seen(
    database_url: str, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
):
    async with _open(database_url, issuer) as server:
        assert (await _ask(server, issuer.sign())).status == 200
        issuer.keys["two"] = CURVE
        token = issuer.sign("two", algorithm="ES256")
        assert (await _ask(server, token)).status == 401
        monkeypatch.setattr(oidc, "LEAST_REFRESH_SECONDS", 0.0)
        assert (await _ask(server, token)).status == 200
        # A key that was taken away is of no use once the others have been fetched again.
        del issuer.keys["one"]
        old = issuer.sign("one", key=RSA)
        monkeypatch.setattr(oidc, "REFRESH_SECONDS", 0.0)
        assert (await _ask(server, old)).status == 401


async def test_an_issuer_that_is_away(database_url: str, issuer: Issuer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(oidc, "LEAST_REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "REFRESH_SECONDS", 0.0)
    async with _open(database_url, issuer) as server:
        issuer.is_away = True
        answer = await _ask(server, issuer.sign())
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        issuer.is_away = False
        assert (await _ask(server, issuer.sign())).status == 200
        issuer.is_away = True
        # What is known of it still counts.
        assert (await _ask(server, issuer.sign())).status == 200


async def test_a_session_ends_with_the_token(database_url: str, issuer: Issuer):
    async with _open(database_url, issuer) as server:
        answer = await server.call("POST", "/session", {"key": issuer.sign(exp=int(time.time()) + 100)})
        assert answer.status == 201
        seconds = int(answer.headers["Set-Cookie"].partition("Max-Age=")[2].split(";")[0])
        assert 0 < seconds <= 100 + oidc.LEEWAY_SECONDS
        server.session.cookie_jar.clear()
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        assert (await server.call("GET", "/session", cookie=cookie)).json["name"] == "ada"
