"""Connections of the HTTP server, as those need them who stream to many clients at once.

What they add stands in the scope, under `extensions`: bytes that are framed once for all clients are written as they
are, and a client that does not read is cut off, which the server's own protocols never do.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

# What has been written already may still be read for so long.
DROP_SECONDS = 5.0
CONNECTION = "rota.connection"


def drop(transport: asyncio.Transport, last: bytes) -> None:
    """Ends a connection, and does not wait for ever until the client has read what was written."""
    if not transport.is_closing():
        transport.write(last)
        transport.close()
        asyncio.get_running_loop().call_later(DROP_SECONDS, transport.abort)


class StreamingHttp(HttpToolsProtocol):
    """HTTP, with a way to drop the client."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        offered: dict[object, object] = {"drop": self.drop}
        self.scope["extensions"] = {CONNECTION: offered}

    def drop(self, last: bytes) -> None:
        """Ends the connection after these bytes."""
        self.cycle.disconnected = True
        drop(self.transport, last)


class StreamingWebSocket(WebSocketsSansIOProtocol):
    """WebSocket, with a way to write what is framed already, and one to drop the client."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            offered: dict[object, object] = {"write": self.write, "drop": self.drop}
            self.scope["extensions"][CONNECTION] = offered

    async def write(self, frames: bytes) -> None:
        """Sends frames once the client has read enough of those before."""
        await self.writable.wait()
        if not (self.disconnected or self.close_sent):
            self.transport.write(frames)

    def drop(self, last: bytes) -> None:
        """Ends the connection after this frame."""
        self.stop_keepalive()
        self.close_sent = True
        drop(self.transport, last)
