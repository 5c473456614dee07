"""Clients of live events, as far as tests need them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.api.server import Server

SECONDS = 10.0


@dataclass
class Updates:
    """A WebSocket client, written from the older system's document: JSON, a type and a payload."""

    socket: aiohttp.ClientWebSocketResponse

    async def read(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.socket.receive_json(timeout=SECONDS)
        return found

    async def read_until(self, kind: str, status: str) -> list[dict[str, Any]]:
        """Everything up to the first event of this type with this status."""
        found = []
        while True:
            found.append(await self.read())
            if (found[-1]["type"], found[-1]["payload"]["status"]) == (kind, status):
                return found

    async def read_many(self, count: int) -> list[dict[str, Any]]:
        return [await self.read() for _ in range(count)]


@asynccontextmanager
async def follow(server: Server, query: str = "", **headers: str) -> AsyncIterator[Updates]:
    """A connection to /ws/updates at the root."""
    async with server.session.ws_connect(f"{server.url}/ws/updates{query}", headers=headers) as socket:
        yield Updates(socket)


@dataclass
class Message:
    """One message of an event stream."""

    fields: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Any:
        return json.loads(self.fields["data"])


@dataclass
class Stream:
    """A client of server-sent events."""

    response: aiohttp.ClientResponse

    async def read(self) -> Message:
        """The next message; comments are left out."""
        message = Message()
        while True:
            line = (await self.response.content.readline()).decode().rstrip("\n")
            name, colon, value = line.partition(": ")
            if colon and name:
                message.fields[name] = value
            elif "data" in message.fields:
                return message
            elif self.response.content.at_eof():
                raise EOFError

    async def read_many(self, count: int) -> list[Any]:
        return [(await self.read()).data for _ in range(count)]


@asynccontextmanager
async def listen(server: Server, path: str, **headers: str) -> AsyncIterator[Stream]:
    """A connection to an address that streams."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SECONDS)
    async with server.session.get(server.url + server.prefix + path, headers=sent, timeout=timeout) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Stream(response)
