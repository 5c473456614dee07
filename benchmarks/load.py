"""Load on an API process: keep-alive connections that cost the machine as little as a client can."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Outcome:
    """What a client saw: the time of each answer in milliseconds, and how long all of it took."""

    waits: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.waits) / self.seconds


def make_request(method: str, path: str, body: bytes | None = None) -> bytes:
    """A request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\n"
    if body is None:
        return f"{head}\r\n".encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def send(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    expected: int = 200,
    keep: Callable[[bytes], None] | None = None,
) -> Outcome:
    """Sends all requests, so many at a time; every answer must have the expected status."""
    outcome = Outcome()
    left = iter(requests)
    start = time.perf_counter()
    await asyncio.gather(*(_send_some(port, left, outcome, expected, keep) for _ in range(connections)))
    outcome.seconds = time.perf_counter() - start
    return outcome


async def _send_some(
    port: int, requests: Iterator[bytes], outcome: Outcome, expected: int, keep: Callable[[bytes], None] | None
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    for request in requests:
        begun = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        outcome.waits.append((time.perf_counter() - begun) * 1000)
        status = int(head[9:12])
        if status != expected:
            raise RuntimeError(f"expected {expected}, got {status}: {body[:500]!r}")
        if keep is not None:
            keep(body)
    writer.close()
    await writer.wait_closed()
