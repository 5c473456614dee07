"""terminate: ends a run at once, whatever its workers are doing."""

from __future__ import annotations

from rota.domain.states import TASK_OPEN
from rota.engine.advance import advance
from rota.engine.core import Core
from rota.engine.items import end_items
from rota.engine.queueing import free_keys
from rota.engine.record import note_run, note_task, record
from rota.store import interventions
from rota.store.database import Transaction
from rota.store.encoding import clean_text
from rota.store.wakeups import Topic


async def terminate_run(core: Core, transaction: Transaction, run_id: str, reason: str) -> bool:
    """Ends everything in a run as cancelled, clean-up tasks too, without waiting for workers; they are told to kill
    what they still execute. False if the run had ended."""
    reason = clean_text(reason)
    run = await interventions.request_cancel(transaction, run_id, reason)
    if run is None:
        return False
    changes = []
    rows = await interventions.lock_open_task_runs(transaction, run_id)
    if run.status == "pending":
        await interventions.start_to_clean_up(transaction, run_id)
        changes.append(note_run(run_id, run.namespace, "pending", "running", {"reason": reason}))
    ended = await interventions.terminate_task_runs(
        transaction, [(row.id, row.status) for row in rows if row.status in TASK_OPEN]
    )
    await free_keys(transaction, ended)
    changes += [
        note_task(row.id, run_id, run.namespace, row.old_status, "cancelled", {"reason": reason}) for row in ended
    ]
    changes += await advance(core, transaction, await end_items(transaction, run_id, ended))
    await record(core, transaction, changes)
    core.follow_up.soon(transaction)
    transaction.wake(Topic.ORDERS)
    return True
