"""An attempt's log: bytes as they come, secrets masked, the first and the last megabyte kept."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rota.domain.work import AttemptKey, LogChunk

MASK = b"***"
MAX_CHUNK_BYTES = 256 * 1024
# Small writes are gathered up to this size, so that a million one-byte writes are not a million objects.
PIECE_BYTES = 64 * 1024


def gap_marker(missing_bytes: int) -> bytes:
    return b"\n[rota: %d bytes of the log left out here]\n" % missing_bytes


class Masker:
    """Replaces secrets in a stream of bytes, also those that arrive in parts."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        # The longest first: of two secrets that begin alike, the longer one must win.
        self._secrets = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets))) if self._secrets else None
        self._longest = len(self._secrets[0]) if self._secrets else 0
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown so far: the end is held back while it may be the beginning of a secret."""
        if self._pattern is None:
            return data
        data = self._held + data
        cut = len(data) - self._count_suspicious(data)
        shown: list[bytes] = []
        position = 0
        for match in self._pattern.finditer(data):
            if match.start() >= cut:
                break
            shown += (data[position : match.start()], MASK)
            position = match.end()
        cut = max(cut, position)
        shown.append(data[position:cut])
        self._held = data[cut:]
        return b"".join(shown)

    def flush(self) -> bytes:
        """The rest, when nothing more will come."""
        rest, self._held = self._held, b""
        return self.mask(rest)

    def mask(self, data: bytes) -> bytes:
        return self._pattern.sub(MASK, data) if self._pattern else data

    def _count_suspicious(self, data: bytes) -> int:
        for length in range(min(self._longest - 1, len(data)), 0, -1):
            ending = data[-length:]
            if any(len(secret) > length and secret.startswith(ending) for secret in self._secrets):
                return length
        return 0


class AttemptLog:
    """Gathers what one attempt writes, and hands it out in chunks with offsets.

    Offsets count every byte written, after masking. What comes after the head goes into a ring that keeps the
    tail, which is handed out at the end, behind a line that says how much is missing.
    """

    __slots__ = (
        "_head_left",
        "_key",
        "_maskers",
        "_on_dirty",
        "_pieces",
        "_secrets",
        "_tail",
        "_tail_limit",
        "_tail_size",
        "_taken",
        "total_bytes",
    )

    def __init__(
        self,
        key: AttemptKey,
        *,
        head_bytes: int,
        tail_bytes: int,
        on_dirty: Callable[[AttemptLog], None],
        secrets: Iterable[str] = (),
    ) -> None:
        self._key = key
        self._on_dirty = on_dirty
        self._head_left = head_bytes
        self._tail_limit = tail_bytes
        self._secrets = [secret.encode(errors="surrogateescape") for secret in secrets]
        self._maskers: dict[str, Masker] = {}
        self._pieces: list[tuple[str, bytearray]] = []
        self._tail: deque[tuple[str, bytearray]] = deque()
        self._tail_size = 0
        # The offset up to which chunks were handed out.
        self._taken = 0
        self.total_bytes = 0

    def write(self, data: bytes, stream: str = "output") -> None:
        """Takes bytes as they were read; never blocks and never fails."""
        if self._secrets:
            masker = self._maskers.get(stream)
            if masker is None:
                masker = self._maskers[stream] = Masker(self._secrets)
            data = masker.feed(data)
        if data:
            self._store(data, stream)

    def write_line(self, text: str, stream: str = "output") -> None:
        """Adds a line of the worker's own."""
        self.write(text.encode(errors="surrogateescape") + b"\n", stream)

    def mask(self, text: str) -> str:
        """The text without the attempt's secrets."""
        if not self._secrets:
            return text
        return Masker(self._secrets).mask(text.encode(errors="surrogateescape")).decode(errors="replace")

    def mask_output(self, value: Any) -> Any:
        """JSON without the attempt's secrets."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask_output(key): self.mask_output(item) for key, item in value.items()}
        return [self.mask_output(item) for item in value] if isinstance(value, list | tuple) else value

    def close_head(self) -> None:
        """From now on only the tail is kept: too much waits for the server already."""
        self._head_left = 0

    def take(self) -> list[LogChunk]:
        """What has come since the last call, as chunks to be sent now."""
        pieces, self._pieces = self._pieces, []
        return self._cut(pieces)

    def finish(self) -> list[LogChunk]:
        """Everything that is left, the tail included."""
        for stream, masker in self._maskers.items():
            if rest := masker.flush():
                self._store(rest, stream)
        chunks = self.take()
        missing = self.total_bytes - self._tail_size - self._taken
        if missing > 0:
            marker = gap_marker(missing)
            # The marker stands in the gap, just before the tail, so offsets stay true. A gap too small for the
            # line is left as a jump of the offset alone.
            marker = marker if len(marker) <= missing else b""
            self._taken += missing - len(marker)
            if marker:
                chunks += self._cut([("output", bytearray(marker))])
        chunks += self._cut(self._tail)
        self._tail.clear()
        return chunks

    def _store(self, data: bytes, stream: str) -> None:
        was_clean = not self._pieces
        self.total_bytes += len(data)
        if self._head_left:
            head, data = data[: self._head_left], data[self._head_left :]
            self._head_left -= len(head)
            append(self._pieces, head, stream)
            if was_clean:
                self._on_dirty(self)
        if data:
            append(self._tail, data[-self._tail_limit :] if self._tail_limit else b"", stream)
            self._tail_size += min(len(data), self._tail_limit)
            self._trim_tail()

    def _trim_tail(self) -> None:
        excess = self._tail_size - self._tail_limit
        while excess > 0:
            _, piece = self._tail[0]
            if len(piece) > excess:
                # Dropping the front of a bytearray does not copy the rest.
                del piece[:excess]
                self._tail_size -= excess
                return
            self._tail.popleft()
            self._tail_size -= len(piece)
            excess -= len(piece)

    def _cut(self, pieces: Iterable[tuple[str, bytearray]]) -> list[LogChunk]:
        chunks = []
        for stream, piece in pieces:
            for start in range(0, len(piece), MAX_CHUNK_BYTES):
                data = bytes(piece[start : start + MAX_CHUNK_BYTES])
                chunks.append(LogChunk(self._key.task_run_id, self._key.attempt, self._taken, data, stream))
                self._taken += len(data)
        return chunks


def append(pieces: list[tuple[str, bytearray]] | deque[tuple[str, bytearray]], data: bytes, stream: str) -> None:
    """Adds to the last piece while it is small and of the same stream."""
    if pieces and pieces[-1][0] == stream and len(pieces[-1][1]) + len(data) <= PIECE_BYTES:
        pieces[-1][1].extend(data)
    elif data:
        pieces.append((stream, bytearray(data)))


class TailBuffer:
    """The last bytes of a stream, to find a task's output in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.total_bytes = 0

    def write(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]

    def read(self) -> bytes:
        return bytes(self._data[-self._limit :])
