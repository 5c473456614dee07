"""WebSocket routes: callers are checked as everywhere, and refusals are told before the connection is made."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import structlog
from starlette.requests import HTTPConnection
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from rota.api.context import get_api
from rota.api.errors import describe
from rota.api.permissions import Need, find_need
from rota.domain.errors import Forbidden, RotaError

log = structlog.get_logger(__name__)
Endpoint = Callable[[WebSocket], Awaitable[None]]


class SocketRoute(WebSocketRoute):
    """A WebSocket route that says who may call it."""

    methods: frozenset[str] = frozenset()

    def __init__(self, path: str, endpoint: Endpoint) -> None:
        self.need = find_need(endpoint)
        super().__init__(path, _guard(endpoint, self.need))


def _guard(endpoint: Endpoint, need: Need) -> Endpoint:
    @functools.wraps(endpoint)
    async def serve(websocket: WebSocket) -> None:
        try:
            refuse_foreign_page(websocket)
            await get_api(websocket).access.admit(websocket, need)
            await endpoint(websocket)
        except WebSocketDisconnect:
            return
        except RotaError as error:
            # Only before the connection is made: after that, endpoints end it with a reason themselves.
            await websocket.send_denial_response(describe(error))
        except Exception:
            log.exception("socket_failed", path=websocket.url.path)
            await websocket.send_denial_response(describe(RotaError("something went wrong here")))

    return serve


def refuse_foreign_page(connection: HTTPConnection) -> None:
    """Browsers let any page open a WebSocket to any server, with the user's cookies: only our own pages may."""
    origin = connection.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != connection.headers.get("host", "").lower():
        raise Forbidden("a page from elsewhere may not connect here: serve it from this server's own address")
