"""Talking to a Rota server: `Client` for plain code, `AsyncClient` for asyncio."""

from rota.client.asynchronous import AsyncClient, LiveEvent
from rota.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "LiveEvent"]
