"""Streams of events to clients: what a stream needs of the hub, and how long a client may keep it waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from rota.api.polls import Polls
from rota.domain.errors import RotaError
from rota.domain.events import Event, EventFilter

# Nothing has happened for so long: say something, so that proxies see that the connection is alive.
QUIET_SECONDS = 15.0
SLOW_CLIENT = "slow_client"


class StreamOver(Exception):
    """Everything has been told."""


class Follower(Protocol):
    """One who follows the events, while the context lasts."""

    def __enter__(self) -> Follower: ...

    def __exit__(self, *error: object) -> None: ...

    @property
    def position(self) -> int:
        """The change up to which it has been told everything."""
        ...

    async def start(self) -> int:
        """Waits until the events can be followed; the change after which they begin."""
        ...

    async def read(self) -> bytes:
        """What has happened since the last call, as soon as there is something. Raises Unavailable."""
        ...


class Feed(Protocol):
    """Where the events come from."""

    def follow(self, wanted: EventFilter, encode: Callable[[Event], bytes], since: int | None = None) -> Follower: ...


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a stream ended: the client left, the server stops, or it was dropped for a reason."""

    is_closing: bool = False
    # There is nothing more to tell.
    is_over: bool = False
    reason: str = ""
    # The key that it began with has expired, or was revoked.
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """How a stream goes on."""

    # They know when the server stops.
    polls: Polls
    stall_seconds: float
    # Looked at again and again: a key may end while a stream goes on.
    is_allowed: Callable[[], Awaitable[bool]]
    check_seconds: float
    # What is said when nothing has happened.
    quiet: bytes = b""


async def pour(
    follower: Follower,
    write: Callable[[bytes], Awaitable[None]],
    wait_until_gone: Callable[[], Awaitable[None]],
    terms: Terms,
) -> Ending:
    """Writes what happens until the client is gone, the server stops, or the client is too slow."""
    pouring = asyncio.ensure_future(_pour(follower, write, terms))
    leaving = asyncio.ensure_future(wait_until_gone())
    ending = asyncio.ensure_future(_wait_for_end(terms))
    everything = {pouring, leaving, ending}
    try:
        await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            return ending.result()
        return pouring.result() if pouring.done() else Ending()
    finally:
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)


async def _wait_for_end(terms: Terms) -> Ending:
    """Until the server stops, or the client may not follow any more."""
    while True:
        try:
            async with asyncio.timeout(terms.check_seconds):
                await terms.polls.wait_until_closing()
        except TimeoutError:
            if not await terms.is_allowed():
                return Ending(reason="the key has expired or was revoked", is_refused=True)
        else:
            return Ending(is_closing=True)


async def _pour(follower: Follower, write: Callable[[bytes], Awaitable[None]], terms: Terms) -> Ending:
    try:
        while True:
            data = await _read(follower) or terms.quiet
            if data:
                async with asyncio.timeout(terms.stall_seconds):
                    await write(data)
    except TimeoutError:
        reason = f"nothing was read for {terms.stall_seconds:g} seconds: come back with since={follower.position}"
        return Ending(reason=reason)
    except StreamOver:
        return Ending(is_over=True)
    except RotaError as error:
        return Ending(reason=error.detail)


async def _read(follower: Follower) -> bytes:
    """What has happened, or nothing after a while."""
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            return await follower.read()
    except TimeoutError:
        return b""
