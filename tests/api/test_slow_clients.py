"""Clients that read slowly, or not at all, harm nobody but themselves."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from rota.api.options import ApiOptions
from rota.store.history import record_changes
from tests.api.server import Server, open_server
from tests.api.streams import follow
from tests.events.changes import make_change

EVENTS = 3_000


@pytest.fixture
async def impatient(database_url: str) -> AsyncIterator[Server]:
    async with open_server(database_url, ApiOptions(stall_seconds=0.5)) as opened:
        yield opened


async def _connect(server: Server, head: str) -> socket.socket:
    """A client with hardly any memory of its own, which has read no more than the head of the answer."""
    address = urlsplit(server.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (address.hostname, address.port))
    await loop.sock_sendall(client, f"GET {head}Host: {address.netloc}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += await loop.sock_recv(client, 1)
    assert answer.startswith((b"HTTP/1.1 101", b"HTTP/1.1 200")), answer
    return client


async def _flood(server: Server) -> None:
    """More than all buffers between server and client hold."""
    details = json.dumps({"filler": "x" * 3000})
    for _ in range(EVENTS // 100):
        changes = [make_change("running")._replace(details=details) for _ in range(100)]
        await server.database.transact(lambda tx, c=changes: record_changes(tx, c))  # type: ignore[misc]


async def _wait_until_dropped(server: Server) -> None:
    """Until only the quick one is left."""
    async with asyncio.timeout(20):
        while server.hub.follower_count > 1:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)


async def _read_to_the_end(client: socket.socket) -> bytes:
    received = bytearray()
    while part := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
        received += part
    return bytes(received)


async def test_a_websocket_client_that_stops_reading_is_dropped(impatient: Server):
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    client = await _connect(impatient, f"/ws/updates HTTP/1.1\r\n{upgrade}{key}")
    async with follow(impatient, "?type=workflow_status") as quick:
        _nothing, told = await asyncio.gather(_flood(impatient), quick.read_many(EVENTS))
        last = told[-1]["seq"]
        await _wait_until_dropped(impatient)
        received = await _read_to_the_end(client)
        # The last frame says why; whatever stands before it was sent as it should be.
        code, reason = _read_close_frame(received)
        assert (code, reason.split(":")[0]) == (1013, "nothing was read for 0.5 seconds")
        since = int(reason.rpartition("since=")[2])
        assert 0 < since < last
        async with follow(impatient, f"?since={since}") as again:
            assert [event["seq"] for event in await again.read_many(last - since)] == [*range(since + 1, last + 1)]
    client.close()


def _read_close_frame(received: bytes) -> tuple[int, str]:
    place = 0
    while True:
        opcode, size = received[place] & 0x0F, received[place + 1]
        place += 2
        if size == 126:
            (size,) = struct.unpack_from("!H", received, place)
            place += 2
        if opcode == 8:
            return struct.unpack_from("!H", received, place)[0], received[place + 2 : place + size].decode()
        place += size


async def test_a_stream_that_nobody_reads_is_dropped(impatient: Server):
    client = await _connect(impatient, "/events HTTP/1.1\r\n")
    async with follow(impatient, "?type=workflow_status") as quick:
        await asyncio.gather(_flood(impatient), quick.read_many(EVENTS))
        await _wait_until_dropped(impatient)
        received = await _read_to_the_end(client)
    assert received.endswith(b"\r\n0\r\n\r\n")
    notice = received.rpartition(b"event: dropped\ndata: ")[2].split(b"\n")[0]
    said = json.loads(notice)
    assert said["code"] == "slow_client"
    assert said["detail"].endswith(f"since={said['seq']}")
    client.close()
