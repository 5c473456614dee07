"""What is special about waiting in the queue: concurrency keys, and how long it may last."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from rota.domain.states import TaskState
from rota.domain.work import ErrorType
from rota.engine.core import Core, ReadyTask
from rota.engine.templates import EVALUATION_ERRORS
from rota.store import concurrency, expiry, queues
from rota.store.database import Transaction
from rota.store.gates import Verdict
from rota.store.interventions import Stopped
from rota.store.queues import QueueSettings
from rota.store.wakeups import Topic

MAX_KEY_BYTES = 200


class Gated(Protocol):
    """A task run that left the hands of its worker."""

    @property
    def id(self) -> str: ...
    @property
    def task_id(self) -> str: ...
    @property
    def is_gated(self) -> bool: ...


async def pass_keys_on(core: Core, transaction: Transaction, rows: Iterable[Gated]) -> None:
    """Gives the keys that these task runs held to whoever waits for them."""
    gated = [row for row in rows if row.is_gated]
    tasks = await core.find_tasks(transaction, [row.task_id for row in gated]) if gated else {}
    keyed = [row.id for row in gated if tasks[row.task_id].key is not None]
    if keyed:
        await pass_on(transaction, keyed)


async def free_keys(transaction: Transaction, stopped: Iterable[Stopped]) -> None:
    """Gives the keys that cancelled task runs held to whoever waits for them."""
    gated = [row.id for row in stopped if row.is_gated]
    if gated:
        await pass_on(transaction, gated)


async def pass_on(transaction: Transaction, task_run_ids: Collection[str]) -> int:
    """Passes on whatever keys these task runs hold; how many found somebody."""
    passed = await concurrency.pass_on(transaction, task_run_ids)
    if passed.granted:
        transaction.wake(Topic.QUEUE)
    if passed.kept:
        transaction.wake(Topic.SCHEDULES)
    return passed.granted


async def stay(transaction: Transaction, staying: Sequence[ReadyTask]) -> list[tuple[ReadyTask, Verdict]]:
    """Lets ready task runs wait for their keys, and no longer than they may; the verdicts on those without a key."""
    waiting = [
        (item.row.id, float(seconds))
        for item in staying
        if (seconds := item.task.document.get("queue_timeout_seconds")) is not None
    ]
    if waiting:
        await expiry.limit_waiting(transaction, waiting)
        transaction.wake(Topic.SCHEDULES)
    keyed = [item for item in staying if item.task.key is not None]
    return await _park(transaction, keyed) if keyed else []


async def _park(transaction: Transaction, keyed: Sequence[ReadyTask]) -> list[tuple[ReadyTask, Verdict]]:
    again = [item.row.id for item in keyed if item.row.attempt]
    if again:
        # Whoever comes back queues up with the others.
        await pass_on(transaction, again)
    parked: list[tuple[str, str]] = []
    refused: list[tuple[ReadyTask, Verdict]] = []
    for item in keyed:
        key = _render(item)
        if isinstance(key, Verdict):
            refused.append((item, key))
        else:
            parked.append((item.row.id, key))
    if parked:
        await concurrency.park(transaction, parked)
        transaction.wake(Topic.SCHEDULES)
    return refused


def _render(item: ReadyTask) -> str | Verdict:
    """The key of a task run, or why it has none."""
    text = item.task.document["concurrency_key"]
    try:
        rendered = item.task.key.render({"concurrency_key": text}, item.values) if item.task.key else {}
        key = str(rendered["concurrency_key"]).strip()
        reason = f"its value has {len(key.encode())} bytes; 1 to {MAX_KEY_BYTES} are allowed"
        if 0 < len(key.encode()) <= MAX_KEY_BYTES:
            return key
    except EVALUATION_ERRORS as error:
        reason = str(error)
    return Verdict(item.row.id, TaskState.FAILED, ErrorType.BAD_TASK, f"concurrency_key: {text}: {reason}")


async def settle_keys(core: Core, transaction: Transaction) -> int:
    """Gives out one batch of free keys. One node does so at a time; the others look again."""
    left = await concurrency.find_left(transaction)
    passed = await pass_on(transaction, left) if left else 0
    if not await concurrency.take_turn(transaction):
        return passed
    settled = await concurrency.settle(transaction)
    if settled.granted:
        transaction.wake(Topic.QUEUE)
    return passed + settled.settled


async def put_queue(core: Core, transaction: Transaction, namespace: str, name: str, wanted: QueueSettings) -> bool:
    """Says what may start of a queue; True if nothing had been said before."""
    transaction.after_commit(core.forget_queues)
    return await queues.put_queue(transaction, namespace, name, wanted)


async def delete_queue(core: Core, transaction: Transaction, namespace: str, name: str) -> bool:
    """Lets everything in a queue start; False if nothing had been said of it."""
    transaction.after_commit(core.forget_queues)
    return await queues.delete_queue(transaction, namespace, name)
