"""due: when the engine has to do something by itself next."""

from __future__ import annotations

from datetime import datetime

from rota.store import concurrency, expiry, gates, maps, outcomes, schedules
from rota.store.database import Transaction


async def find_next_due(transaction: Transaction) -> tuple[datetime | None, datetime]:
    """The next instant at which something is due (None if nothing is), and the database's time now."""
    fire_at, now = await schedules.read_next_due(transaction)
    retry_at, _now = await outcomes.read_next_due(transaction)
    held_at = await gates.read_next_due(transaction)
    expiry_at = await expiry.read_next_due(transaction)
    keys_at = await concurrency.read_next_due(transaction)
    items_at = now if await maps.find_unfinished(transaction) else None
    moments = [moment for moment in (fire_at, retry_at, held_at, expiry_at, keys_at, items_at) if moment is not None]
    return (min(moments) if moments else None), now
