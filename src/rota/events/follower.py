"""One who follows the events: from the database while far behind, from the ring when near, then as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rota.domain.events import Event, EventFilter
from rota.events.ring import Batch, Encoder, Ring

# As much as is worth handing over at once.
READ_BYTES = 65_536


class Page(NamedTuple):
    """Events from the database, and the change up to which there are no others."""

    events: Sequence[Event]
    last_seq: int


class Source(Protocol):
    """Where the events come from: the hub."""

    @property
    def ring(self) -> Ring: ...

    def add(self, follower: Follower) -> None: ...

    def remove(self, follower: Follower) -> None: ...

    async def wait_until_ready(self) -> None: ...

    async def wait_for_more(self) -> None: ...

    async def read_page(self, since: int) -> Page: ...


class Follower:
    """Holds no events of its own: only where it is. So one who is slow costs nothing but its own patience."""

    def __init__(self, source: Source, wanted: EventFilter, encode: Encoder, since: int | None) -> None:
        self.wanted = wanted
        self._source = source
        self._ring = source.ring
        self._encode = encode
        self._since = since
        # The batch in the ring that is next; None while it reads from the database.
        self._next: int | None = None
        # Heartbeats that are older than its coming are none for it.
        self._joined = 0

    def __enter__(self) -> Follower:
        self._source.add(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._source.remove(self)

    @property
    def position(self) -> int:
        """The change up to which it has been told everything."""
        return self._since or 0

    async def start(self) -> int:
        """Waits until the events can be followed; the change after which they begin."""
        await self._source.wait_until_ready()
        if self._since is None:
            self._since = self._ring.position
            self._join()
        return self._since

    async def read(self) -> bytes:
        """What has happened since the last call, as soon as there is something."""
        since = await self.start()
        while True:
            if self._next is None:
                found = await self._catch_up(since)
            else:
                found = self._take(since)
                if not found and self._is_up_to_date():
                    await self._source.wait_for_more()
            since = self.position
            if found:
                return found

    async def _catch_up(self, since: int) -> bytes:
        """A page from the database, unless what follows is in the ring."""
        if since > self._ring.position:
            # Told by another node, which is a little ahead of this one.
            await self._source.wait_for_more()
            return b""
        if since >= self._ring.base:
            self._join()
            return b""
        page = await self._source.read_page(since)
        self._since = max(since, page.last_seq)
        return b"".join(self._encode(event) for event in page.events if self.wanted.matches(event))

    def _is_up_to_date(self) -> bool:
        return self._next is not None and self._next > self._ring.number

    def _join(self) -> None:
        self._next = self._ring.find_after(self.position)
        self._joined = self._ring.number

    def _take(self, since: int) -> bytes:
        """The next batches, as many as make a good piece."""
        parts: list[bytes] = []
        size = 0
        while self._next is not None and size < READ_BYTES:
            if self._ring.has_lost(self._next):
                # Slower than the events are: the database keeps what is not kept here.
                self._next = None
                break
            batch = self._ring.get(self._next)
            if batch is None:
                break
            part = self._encode_batch(batch, since)
            parts.append(part)
            size += len(part)
            self._next += 1
            self._since = since = max(since, batch.last_seq)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _encode_batch(self, batch: Batch, since: int) -> bytes:
        if not batch.is_lasting and batch.number <= self._joined:
            return b""
        return batch.encode(self.wanted, self._encode, since=since)
