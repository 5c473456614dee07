"""Delivering events to Redis and to webhooks: at least once, in order, whatever is away meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from redis.asyncio import Redis
from standardwebhooks.webhooks import Webhook

from rota.domain.errors import NOT_LEADER, Conflict
from rota.events.delivery import Delivery, DeliveryOptions, Target
from rota.events.redis_target import CHANNEL, STREAM, RedisTarget
from rota.events.webhook_target import WebhookTarget, make_caller
from rota.store import sinks
from rota.store.database import Database, Transaction
from rota.store.wakeups import Topic
from tests.events.changes import write
from tests.servers.redis import RedisServer, open_redis

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
QUICK = DeliveryOptions(pause_seconds=0.001, retry_seconds=0.02)


class Leader:
    """A node that leads until it does not."""

    def __init__(self) -> None:
        self.is_leader = True
        # It is replaced, and does not know it yet.
        self.is_replaced = False

    async def check_term(self, transaction: Transaction) -> None:
        if not self.is_leader or self.is_replaced:
            raise Conflict("this node does not lead", code=NOT_LEADER)


@asynccontextmanager
async def delivering(
    database: Database, target: Target, leader: Leader | None = None, options: DeliveryOptions = QUICK
) -> AsyncIterator[None]:
    """Delivers, from now on at the latest."""
    delivery = Delivery(database, target, leader or Leader(), options)
    task = asyncio.create_task(delivery.run())
    try:
        await _wait_for_place(database, target.name, 0)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _wait_for_place(database: Database, name: str, seq: int) -> sinks.Sink:
    return await _wait_for(database, name, lambda place: place.seq >= seq)


async def _wait_for(database: Database, name: str, is_so: Callable[[sinks.Sink], bool]) -> sinks.Sink:
    async with asyncio.timeout(30):
        while True:
            place = await database.read(lambda tx: sinks.read_sink(tx, name))
            if place and is_so(place):
                return place
            await asyncio.sleep(0.005)


def _states(events: list[dict[str, Any]]) -> list[str]:
    return [event["payload"]["status"] for event in events]


# --- Redis ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with open_redis() as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisTarget]:
    target = RedisTarget(redis_server.url)
    yield target
    await target.close()


async def _read_stream(server: RedisServer) -> list[dict[str, Any]]:
    client = Redis.from_url(server.url)
    entries: Any = await client.xrange(STREAM)
    await client.aclose()
    return [json.loads(fields[b"event"]) for _number, fields in entries]


async def test_redis_gets_every_event_on_channel_and_stream(
    database: Database, redis: RedisTarget, redis_server: RedisServer
):
    client = Redis.from_url(redis_server.url)
    subscription = client.pubsub()
    await subscription.subscribe(CHANNEL)
    await write(database, "before")
    async with delivering(database, redis):
        await write(database, "a", "b")
        await write(database, "c")
        await _wait_for_place(database, "redis", 4)
    assert _states(await _read_stream(redis_server)) == ["a", "b", "c"]
    heard: list[dict[str, Any]] = []
    async with asyncio.timeout(10):
        while len(heard) < 3:
            message = await subscription.get_message(ignore_subscribe_messages=True, timeout=1)
            heard += [json.loads(message["data"])] if message else []
    assert _states(heard) == ["a", "b", "c"]
    await subscription.aclose()
    await client.aclose()


async def test_a_redis_that_is_away_misses_nothing(database: Database, redis: RedisTarget, redis_server: RedisServer):
    async with delivering(database, redis):
        await write(database, "a")
        await _wait_for_place(database, "redis", 1)
        redis_server.kill()
        for number in range(30):
            await write(database, f"n{number}")
        place = await _wait_for(database, "redis", lambda place: place.failures >= 2)
        assert place.seq == 1
        assert "Redis does not take the events" in (place.error or "")
        redis_server.start()
        after = await _wait_for_place(database, "redis", 31)
    assert (after.failures, after.error, after.failing_since) == (0, None, None)
    assert _states(await _read_stream(redis_server)) == [f"n{number}" for number in range(30)]


async def test_the_next_leader_goes_on_where_the_last_one_was(
    database: Database, redis: RedisTarget, redis_server: RedisServer
):
    first, second = Leader(), Leader()
    second.is_leader = False
    async with delivering(database, redis, first), delivering(database, redis, second):
        await write(database, "a")
        await _wait_for_place(database, "redis", 1)
        # Replaced without knowing it, it may send once more, but its place is not noted.
        first.is_replaced = True
        await write(database, "b")
        second.is_leader = True
        database.wakeups.call_locally([Topic.CLUSTER])
        await _wait_for_place(database, "redis", 2)
        first.is_leader = False
        await write(database, "c")
        await _wait_for_place(database, "redis", 3)
    states = _states(await _read_stream(redis_server))
    assert set(states) == {"a", "b", "c"}
    assert states[0] == "a"
    assert states[-1] == "c"


# --- webhooks -------------------------------------------------------------------------------------------------------


class Receiver:
    """An HTTP server that takes events, or not."""

    def __init__(self) -> None:
        self.status = 200
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        document = Webhook(SECRET).verify(body, dict(request.headers))
        self.ids.append(request.headers["webhook-id"])
        if self.status == 200:
            self.events += document["data"]["events"]
        return web.Response(status=self.status)


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Receiver, WebhookTarget]]:
    taking = Receiver()
    app = web.Application()
    app.router.add_post("/hook", taking.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    caller = make_caller()
    await caller.open()
    yield taking, WebhookTarget(f"http://127.0.0.1:{port}/hook?key=hidden", SECRET, caller)
    await caller.close()
    await runner.cleanup()


async def test_a_webhook_gets_signed_events(database: Database, receiver: tuple[Receiver, WebhookTarget]):
    taking, target = receiver
    names = [f"n{number}" for number in range(250)]
    async with delivering(database, target):
        await write(database, *names)
        await _wait_for_place(database, target.name, 250)
    assert _states(taking.events) == names
    assert taking.ids == ["evt_1_100", "evt_101_200", "evt_201_250"]
    assert "hidden" not in target.name


async def test_a_webhook_that_fails_is_tried_again(database: Database, receiver: tuple[Receiver, WebhookTarget]):
    taking, target = receiver
    taking.status = 500
    async with delivering(database, target):
        await write(database, "a")
        place = await _wait_for(database, target.name, lambda place: place.failures >= 2)
        assert place.error == "it answered 500"
        taking.status = 200
        await _wait_for_place(database, target.name, 1)
    assert _states(taking.events) == ["a"]
    assert len(set(taking.ids)) == 1


async def test_a_webhook_that_is_dead_is_disabled_until_it_is_enabled(
    database: Database, receiver: tuple[Receiver, WebhookTarget]
):
    taking, target = receiver
    taking.status = 410
    options = DeliveryOptions(pause_seconds=0.001, retry_seconds=0.01, give_up_seconds=0.05)
    async with delivering(database, target, options=options):
        await write(database, "a")
        place = await _wait_for(database, target.name, lambda place: place.disabled_at is not None)
        assert (place.error, place.seq) == ("it answered 410", 0)
        taking.status = 200
        await write(database, "b")
        assert await database.transact(lambda tx: sinks.enable_sink(tx, target.name))
        database.wakeups.call_locally([Topic.CLUSTER])
        await _wait_for_place(database, target.name, 2)
    assert _states(taking.events) == ["a", "b"]
