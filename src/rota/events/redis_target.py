"""Events to Redis: each is published on a channel, and appended to a stream that is kept at a length."""

from __future__ import annotations

from collections.abc import Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from rota.domain.events import Event
from rota.events.delivery import SinkFailed

CHANNEL = "rota.events"
STREAM = "rota:events"
STREAM_LENGTH = 100_000
CONNECT_SECONDS = 5.0
Word = bytes | bytearray | memoryview | str | int | float


def _describe(event: Event) -> dict[Word, Word]:
    return {"seq": event.seq, "type": event.type.value, "namespace": event.namespace, "event": event.document}


class RedisTarget:
    """A Redis server. Whoever reads from it may meet an event again after a failure: `seq` tells."""

    name = "redis"

    def __init__(self, url: str) -> None:
        # It is the delivery that repeats: one that was not answered would be hidden otherwise.
        self._redis = Redis.from_url(
            url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=CONNECT_SECONDS, retry_on_error=[]
        )

    async def send(self, events: Sequence[Event]) -> None:
        """One round trip for all of them."""
        pipeline = self._redis.pipeline(transaction=False)
        for event in events:
            pipeline.xadd(STREAM, _describe(event), maxlen=STREAM_LENGTH, approximate=True)
            pipeline.publish(CHANNEL, event.document)
        try:
            await pipeline.execute()
        except (RedisError, OSError) as error:
            raise SinkFailed(f"Redis does not take the events: {error}") from error

    async def close(self) -> None:
        await self._redis.aclose()
