"""The latest events, kept once for everybody who follows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from rota.domain.events import Event, EventFilter

Encoder = Callable[[Event], bytes]
# What a batch takes beside its documents, about.
OVERHEAD_BYTES = 500


class Batch:
    """Events that came at once. What they look like to those who want the same of them is written once."""

    __slots__ = ("_encoded", "events", "is_lasting", "last_seq", "number", "size")

    def __init__(self, number: int, events: Sequence[Event], last_seq: int, *, is_lasting: bool) -> None:
        self.number = number
        self.events = events
        self.last_seq = last_seq
        # Recorded, so that who was away gets it later. Heartbeats are not.
        self.is_lasting = is_lasting
        self.size = OVERHEAD_BYTES + sum(len(event.document) for event in events)
        self._encoded: dict[tuple[EventFilter, Encoder], bytes] = {}

    def encode(self, wanted: EventFilter, encode: Encoder, *, since: int = 0) -> bytes:
        """What of it is wanted, after the change `since`."""
        if self.is_lasting and self.events and self.events[0].seq <= since:
            return b"".join(encode(event) for event in self.events if event.seq > since and wanted.matches(event))
        found = self._encoded.get((wanted, encode))
        if found is None:
            found = b"".join(encode(event) for event in self.events if wanted.matches(event))
            self._encoded[wanted, encode] = found
        return found


class Ring:
    """The batches since `base`: a number of a change, up to which everything is gone from here."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        # Of the last batch, and of the change up to which everything is known.
        self.number = 0
        self.position = 0
        self.base = 0

    def restart(self, position: int) -> None:
        """Everything is forgotten; what comes next comes after `position`."""
        self._batches.clear()
        self._bytes = 0
        self.position = self.base = position

    def add(self, events: Sequence[Event], position: int, *, is_lasting: bool = True) -> None:
        """Appends a batch, after which everything up to `position` is known; the oldest make room."""
        self.number += 1
        self.position = position
        batch = Batch(self.number, events, position, is_lasting=is_lasting)
        self._batches.append(batch)
        self._bytes += batch.size
        while self._bytes > self._most_bytes and len(self._batches) > 1:
            gone = self._batches.popleft()
            self._bytes -= gone.size
            self.base = gone.last_seq

    def get(self, number: int) -> Batch | None:
        """The batch of this number; None when it is gone, or has not come yet."""
        place = number - self.number - 1 + len(self._batches)
        return self._batches[place] if 0 <= place < len(self._batches) else None

    def has_lost(self, number: int) -> bool:
        """Whether the batch of this number was here once."""
        return number <= self.number - len(self._batches)

    def find_after(self, seq: int) -> int:
        """The number of the first batch in which there is something after the change `seq`."""
        number = self.number + 1
        for batch in reversed(self._batches):
            if batch.last_seq <= seq:
                break
            number = batch.number
        return number
