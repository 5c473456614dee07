"""An HTTP server that answers as a test tells it, and remembers what it was asked."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Any]


class Sink:
    """A server whose answer each test sets, and which remembers what it was asked."""

    def __init__(self) -> None:
        self.handler: Handler = lambda request: web.json_response({"ok": True})
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.transports: set[int] = set()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.method, request.path, headers, body))
        self.transports.add(id(request.transport))
        answer = self.handler(request)
        response: web.StreamResponse = answer if isinstance(answer, web.StreamResponse) else await answer
        return response


async def serve(sink: Sink, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", sink.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    sink.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    return runner
