"""One key for everybody: what stands between the API and a network until each client has a key of its own."""

from __future__ import annotations

import hmac

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

# Probes of load balancers and container platforms carry no key, and learn nothing.
OPEN_PATHS = ("/healthz", "/readyz")
REFUSAL = msgspec.json.encode(
    {
        "type": "about:blank",
        "title": "Unauthorized",
        "status": 401,
        "code": "unauthenticated",
        "detail": "send the server's key: Authorization: Bearer KEY",
        "errors": [],
    }
)


class SharedKey:
    """Lets requests and WebSockets with the key through, and nobody else."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or self._is_known(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4401, "reason": "send the server's key"})
        else:
            headers = [(b"content-type", b"application/problem+json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": REFUSAL})

    def _is_known(self, scope: Scope) -> bool:
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        return any(hmac.compare_digest(value, self._expected) for value in shown)
