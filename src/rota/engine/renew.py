"""renew: workers register, say that they are alive, and leave."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from rota.domain.errors import FieldError, InvalidInput, NotFound, Unauthenticated
from rota.domain.work import AttemptKey, Registered, Registration, RenewReply, WorkerIdentity
from rota.engine.core import Core, WorkerFacts, can_exist
from rota.engine.reap import lose_attempts
from rota.engine.record import note_worker, record
from rota.store import workers
from rota.store.database import Transaction
from rota.store.encoding import clean_text
from rota.store.wakeups import Topic

MAX_CONCURRENCY = 100_000


async def register(core: Core, transaction: Transaction, registration: Registration) -> Registered:
    """Makes the worker known under a new incarnation, whatever other workers have its name."""
    _check(registration)
    worker_id = core.new_ids(1)[0]
    incarnation = str(uuid.uuid4())
    name = clean_text(registration.name or registration.hostname) or worker_id
    await workers.insert_worker(
        transaction,
        {
            "new_id": worker_id,
            "name": name,
            "new_incarnation": incarnation,
            "hostname": registration.hostname,
            "queues": list(registration.queues),
            "kinds": list(registration.kinds),
            "labels": dict(registration.labels),
            "concurrency": registration.concurrency,
            "software_version": registration.version[:40],
            "lease_seconds": core.options.lease_seconds,
        },
    )
    await record(core, transaction, [note_worker(worker_id, None, "active", {"name": name})])
    core.workers.put(
        incarnation,
        WorkerFacts(
            worker_id,
            incarnation,
            frozenset(registration.queues),
            frozenset(registration.kinds),
            frozenset(registration.labels.items()),
        ),
    )
    return Registered(worker_id, incarnation, core.options.heartbeat_interval_seconds, core.options.lease_seconds)


def _check(registration: Registration) -> None:
    errors = []
    if not 1 <= registration.concurrency <= MAX_CONCURRENCY:
        errors.append(FieldError("concurrency", f"must be between 1 and {MAX_CONCURRENCY}"))
    if not registration.queues:
        errors.append(FieldError("queues", "name at least one queue, such as `default`"))
    if not registration.kinds:
        errors.append(FieldError("kinds", "name at least one kind of task, such as `shell`"))
    if len(registration.name) > 200 or len(registration.hostname) > 255:
        errors.append(FieldError("worker_id", "must have at most 200 characters"))
    if errors:
        raise InvalidInput.of(errors)


async def require_worker(core: Core, transaction: Transaction, identity: WorkerIdentity) -> WorkerFacts:
    """The worker of this identity; it must register anew if it is not known (any more)."""
    facts = await core.find_worker(transaction, identity.incarnation)
    if facts is None or facts.id != identity.worker_id:
        raise Unauthenticated("this worker is not registered (any more): register again", code="unknown_worker")
    return facts


async def renew(
    core: Core, transaction: Transaction, identity: WorkerIdentity, running: Sequence[AttemptKey]
) -> RenewReply:
    """Renews the worker's own lease and those of its attempts; says what to cancel and what is no longer its own."""
    alive = await workers.beat(transaction, identity.worker_id, identity.incarnation, core.options.lease_seconds)
    if alive is None:
        core.workers.forget(identity.incarnation)
        raise Unauthenticated("this worker was given up: register again", code="unknown_worker")
    named = {(key.task_run_id, key.attempt) for key in running}
    held = {key for key in named if can_exist(*key)}
    renewed = await workers.renew_leases(transaction, identity.incarnation, sorted(held), core.options.lease_seconds)
    missing = held - {(row[0], row[1]) for row in renewed}
    if missing:
        missing -= await workers.find_held(transaction, identity.incarnation, sorted(missing))
    missing |= named - held
    return RenewReply(
        cancel=tuple(AttemptKey(row[0], row[1]) for row in renewed if row[2]),
        lost=tuple(AttemptKey(*key) for key in sorted(missing)),
        is_draining=bool(alive.is_drain_requested),
    )


async def leave(core: Core, transaction: Transaction, identity: WorkerIdentity) -> None:
    """The worker stops; what it still held is queued again at once, free of charge."""
    rows = await workers.find_running(transaction, identity.incarnation)
    await lose_attempts(
        core,
        transaction,
        [(row.id, row.attempt, row.incarnation) for row in rows],
        needs_expired_lease=False,
        reason="the worker handed it back",
        is_charged=False,
    )
    if await workers.retire(transaction, identity.incarnation):
        await record(core, transaction, [note_worker(identity.worker_id, "active", "inactive", {"reason": "left"})])
    core.workers.forget(identity.incarnation)


async def doubt(core: Core, transaction: Transaction, identity: WorkerIdentity) -> None:
    """The worker's connection broke: unless it is heard of again, its leases end soon."""
    await workers.doubt(transaction, identity.incarnation, core.options.suspect_seconds)


async def drain(core: Core, transaction: Transaction, worker_id: str) -> None:
    """Asks the worker to finish what it has and to take no more."""
    if not await workers.ask_to_drain(transaction, worker_id):
        raise NotFound(f"there is no active worker {worker_id}")
    transaction.wake(Topic.ORDERS)
