"""What a server process does with events: relays them to its clients, and delivers them while it leads."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rota.cluster.member import Member
from rota.domain.errors import FieldError, InvalidInput
from rota.events.delivery import Delivery, Target
from rota.events.hub import Hub
from rota.events.webhook_target import WebhookTarget, make_caller
from rota.observability.metrics import Metrics
from rota.settings import Settings
from rota.store.database import Database


@contextlib.asynccontextmanager
async def relay_events(hub: Hub | None) -> AsyncIterator[None]:
    """Relays events for as long as the API may have clients."""
    async with _running([hub] if hub else []):
        yield


@contextlib.asynccontextmanager
async def deliver_events(
    settings: Settings, database: Database, member: Member | None, metrics: Metrics
) -> AsyncIterator[None]:
    """Delivers events while this node leads, to whom the settings name."""
    if member is None or not (settings.redis_url or settings.event_webhooks):
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        targets: list[Target] = []
        if settings.redis_url:
            redis = _make_redis_target(settings.redis_url)
            stack.push_async_callback(redis.close)
            targets.append(redis)
        if settings.event_webhooks:
            caller = make_caller()
            await caller.open()
            stack.push_async_callback(caller.close)
            targets += [WebhookTarget(url, settings.event_webhook_secret, caller) for url in settings.event_webhooks]
        await stack.enter_async_context(
            _running([Delivery(database, target, member, metrics=metrics) for target in targets])
        )
        yield


def _make_redis_target(url: str) -> Any:
    """Redis is an extra: what speaks to it is loaded when it is wanted."""
    try:
        return importlib.import_module("rota.events.redis_target").RedisTarget(url)
    except ModuleNotFoundError as error:
        reason = "takes the extra `redis`: pip install 'rota[redis]'"
        raise InvalidInput.of([FieldError("redis_url", reason)]) from error
    except ValueError as error:
        raise InvalidInput.of([FieldError("redis_url", f"is not the address of a Redis: {error}")]) from error


@contextlib.asynccontextmanager
async def _running(parts: Sequence[Hub | Delivery]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run(), name="rota-events") for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
