"""Why a mapped task, or an item of one, is where it is."""

from __future__ import annotations

from rota.store import maps
from rota.store.database import Transaction


async def explain_mapped(transaction: Transaction, run_id: str, task_id: str) -> tuple[str, str]:
    """A stable code and a sentence for a mapped task that waits for its items."""
    row = (await maps.read_maps(transaction, [(run_id, task_id)]))[run_id, task_id]
    sentence = f"{row.remaining:,} of its {row.total:,} items have not ended"
    waiting = f"; {row.waiting:,} wait for others of them" if row.waiting else ""
    faults = f"; {row.failed + row.cancelled:,} failed or were cancelled" if row.failed + row.cancelled else ""
    return "waiting_for_items", sentence + waiting + faults


async def explain_item(transaction: Transaction, run_id: str, task_id: str) -> tuple[str, str]:
    """A stable code and a sentence for an item that waits for others of its map."""
    row = (await maps.read_maps(transaction, [(run_id, task_id)]))[run_id, task_id]
    return "map_concurrency", f"{row.active:,} items of its task are on their way, and {row.concurrency:,} may be"
