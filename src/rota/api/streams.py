"""Server-sent events: a response that goes on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Response
from starlette.types import Receive, Scope, Send

from rota.api import frames
from rota.api.access import get_caller
from rota.api.context import Api
from rota.api.live import SLOW_CLIENT, Ending, Follower, Terms, pour
from rota.api.schemas.events import MAX_SEQ
from rota.domain.errors import FieldError, InvalidInput, Unauthenticated

EVENT_STREAM = "text/event-stream"
RETRY_MILLISECONDS = 1000
# Where the server offers it (`app.connections`): writing what is framed already, and cutting a client off.
CONNECTION = "rota.connection"
LastEventId = Annotated[str | None, Header(description="What `EventSource` sends when it comes back.")]


def read_last_id(text: str) -> int | None:
    """The place after which a stream is to go on."""
    if text and not (text.isdigit() and len(text) < 20 and int(text) <= MAX_SEQ):
        raise InvalidInput.of([FieldError("Last-Event-ID", "is not the `id` of an event: send it as it was given")])
    return int(text) if text else None


def make_terms(api: Api, quiet: bytes = b"") -> Terms:
    """How streams to the caller of this request go on."""
    options, caller = api.options, get_caller()
    return Terms(
        api.polls,
        options.stall_seconds,
        lambda: api.access.is_still_good(caller),
        options.check_seconds,
        quiet,
    )


class EventStream(Response):
    """A response that goes on until one of the two has enough."""

    media_type = EVENT_STREAM

    def __init__(self, api: Api, follower: Follower) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._api = api
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def write(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        async def wait_until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        with self._follower as follower:
            since = await follower.start()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await write(b"retry: %d\n" % RETRY_MILLISECONDS + frames.write_notice("ready", since))
            terms = make_terms(self._api, quiet=b": quiet\n\n")
            ending = await pour(follower, write, wait_until_gone, terms)
            await _end(ending, follower, scope, send)


async def _end(ending: Ending, follower: Follower, scope: Scope, send: Send) -> None:
    last = b""
    if ending.is_over:
        last = frames.write_notice("end", follower.position)
    elif ending.reason:
        code = Unauthenticated.code if ending.is_refused else SLOW_CLIENT
        last = frames.write_notice("dropped", follower.position, code=code, detail=ending.reason)
    connection = scope.get("extensions", {}).get(CONNECTION)
    if not (ending.is_closing or ending.reason or ending.is_over):
        return
    if connection is None or ending.is_over:
        await send({"type": "http.response.body", "body": last})
    else:
        connection["drop"](frames.chunk_last(last))
