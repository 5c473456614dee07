"""Events to somebody's HTTP server, signed by Standard Webhooks."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import aiohttp
import msgspec
from yarl import URL

from rota.domain.events import Event
from rota.events.delivery import SinkFailed
from rota.outbound.caller import Caller, explain_failure
from rota.outbound.signing import sign

CALL_SECONDS = 30.0
EVENTS_PER_CALL = 100
MOST_ANSWER_BYTES = 10_000
EVERYWHERE = ("0.0.0.0/0", "::/0")


class WebhookTarget:
    """One address. A call carries up to a hundred events, and its id is the same when it is repeated."""

    def __init__(self, url: str, secret: str, caller: Caller) -> None:
        # The address may have a secret in it, so not all of it is in the name that everybody sees.
        self.name = f"webhook-{URL(url).host}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
        self._url = url
        self._secret = secret
        self._caller = caller

    async def send(self, events: Sequence[Event]) -> None:
        for start in range(0, len(events), EVENTS_PER_CALL):
            await self._call(events[start : start + EVENTS_PER_CALL])

    async def _call(self, events: Sequence[Event]) -> None:
        body = msgspec.json.encode(
            {
                "type": "rota.events",
                "timestamp": datetime.now(UTC),
                "data": {"events": [msgspec.Raw(event.document) for event in events]},
            }
        )
        headers = {"Content-Type": "application/json"}
        if self._secret:
            message_id = f"evt_{events[0].seq}_{events[-1].seq}"
            headers |= sign(self._secret, message_id=message_id, timestamp=int(time.time()), body=body)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                reply = await self._caller.call("POST", self._url, headers, body)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as error:
            raise SinkFailed(explain_failure(error)[1]) from error
        if not 200 <= reply.status < 300:
            raise SinkFailed(f"it answered {reply.status}")


def make_caller() -> Caller:
    """The connections of all webhooks. Who set them up may reach what this machine reaches."""
    return Caller(EVERYWHERE, MOST_ANSWER_BYTES)
