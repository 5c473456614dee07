"""prune: deletes what is older than its retention."""

from __future__ import annotations

from rota.engine.core import Core
from rota.store import audit, pruning, signed_in
from rota.store.database import Transaction

BATCH = 200
KEY_RETENTION_SECONDS = 86_400.0


async def prune(core: Core, transaction: Transaction, retention_seconds: float) -> int:
    """Deletes one batch; returns how many runs, workers and audit entries went. Call again until it returns zero."""
    runs = await pruning.delete_old_runs(transaction, retention_seconds=retention_seconds, limit=BATCH)
    workers = await pruning.delete_old_workers(transaction, retention_seconds=retention_seconds, limit=BATCH)
    await pruning.delete_old_keys(transaction, retention_seconds=KEY_RETENTION_SECONDS)
    await signed_in.delete_ended(transaction)
    entries = await audit.delete_old(transaction, retention_seconds=core.options.audit_retention_seconds)
    return runs + workers + entries
