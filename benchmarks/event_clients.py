"""WebSocket clients that cost the machine as little as they can; run as a process of its own.

`python -m benchmarks.event_clients PORT CLIENTS SAMPLED COUNT SINCE` prints `ready`, reads COUNT events in each client,
and prints as JSON when each was there (by the monotonic clock), for the first SAMPLED clients.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

_NUMBER = re.compile(rb'"status":"e(\d+)"')
_UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
PING = b"\x89\x04"
# Masked, as clients must, with a mask that changes nothing.
PONG = b"\x8a\x84\0\0\0\0"
_KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


async def _connect(port: int, since: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    query = "type=workflow_status" + (f"&since={since}" if since != "-" else "")
    writer.write(f"GET /ws/updates?{query} HTTP/1.1\r\nHost: bench\r\n{_UPGRADE}{_KEY}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in head:
        raise RuntimeError(head.decode())
    return reader, writer


def _answer_pings(data: bytes, writer: asyncio.StreamWriter) -> None:
    """JSON has no such byte in it, so this is a ping (of four bytes) wherever it stands."""
    place = data.find(PING)
    if place >= 0:
        writer.write(PONG + data[place + len(PING) : place + len(PING) + 4])


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> list[tuple[int, int]]:
    """The numbers of events in their order, each with the time at which it was there."""
    found: list[tuple[int, int]] = []
    rest = b""
    while len(found) < count:
        part = await reader.read(1 << 20)
        now = time.monotonic_ns()
        if not part:
            raise RuntimeError(f"the server hung up after {len(found)} of {count} events")
        _answer_pings(part, writer)
        data = rest + part
        end = 0
        for match in _NUMBER.finditer(data):
            found.append((int(match[1]), now))
            end = match.end()
        # What may be the beginning of another one.
        rest = data[max(end, len(data) - 40) :]
    return found


async def _count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> int:
    """How many events came, told by their marks alone."""
    seen, rest = 0, b""
    while seen < count:
        part = await reader.read(1 << 20)
        if not part:
            raise RuntimeError(f"the server hung up after {seen} of {count} events")
        _answer_pings(part, writer)
        data = rest + part
        seen += data.count(b'"status":"e')
        rest = data[-10:]
    return seen


async def main() -> None:
    port, clients, sampled, count = (int(word) for word in sys.argv[1:5])
    opened = [await _connect(port, sys.argv[5]) for _ in range(clients)]
    print("ready", flush=True)
    reading = [asyncio.create_task(_read(reader, writer, count)) for reader, writer in opened[:sampled]]
    counting = [asyncio.create_task(_count(reader, writer, count)) for reader, writer in opened[sampled:]]
    read = await asyncio.gather(*reading)
    counted = await asyncio.gather(*counting)
    print(json.dumps({"read": read, "counted": counted}), flush=True)
    for _reader, writer in opened:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main())
