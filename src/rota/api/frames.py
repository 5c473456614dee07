"""Events as they go over the wire: framed once, sent to many."""

from __future__ import annotations

import struct

import msgspec

from rota.domain.events import Event

GOING_AWAY = 1001
NOT_ALLOWED = 1008
TRY_AGAIN_LATER = 1013
MOST_REASON_BYTES = 123


def frame_text(event: Event) -> bytes:
    """An event as a WebSocket message. What a server sends is not masked, so it is the same for all."""
    size = len(event.document)
    if size < 126:
        return struct.pack("!BB", 0x81, size) + event.document
    if size < 65_536:
        return struct.pack("!BBH", 0x81, 126, size) + event.document
    return struct.pack("!BBQ", 0x81, 127, size) + event.document


def frame_close(code: int, reason: str) -> bytes:
    """The last frame of a WebSocket connection."""
    said = reason.encode()[:MOST_REASON_BYTES]
    return struct.pack("!BBH", 0x88, 2 + len(said), code) + said


def write_line(event: Event) -> bytes:
    """An event as a line, for servers that frame what they send themselves."""
    return event.document + b"\n"


def write_sse(event: Event) -> bytes:
    """An event of a stream for `EventSource`, which sends the last `id` when it comes back."""
    return b"id: %d\ndata: %s\n\n" % (event.seq, event.document)


def write_notice(name: str, seq: int, **fields: object) -> bytes:
    """Something about the stream itself, of which everything up to `seq` has been told."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (seq, name.encode(), msgspec.json.encode({"seq": seq, **fields}))


def chunk_last(data: bytes) -> bytes:
    """The end of an HTTP answer that is sent in chunks."""
    return (b"%x\r\n%s\r\n" % (len(data), data) if data else b"") + b"0\r\n\r\n"
