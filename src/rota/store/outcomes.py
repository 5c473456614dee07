"""Statements that end attempts: guarded by attempt and incarnation, they return what landed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    Float,
    Integer,
    String,
    Text,
    and_,
    bindparam,
    case,
    func,
    not_,
    null,
    or_,
    select,
    type_coerce,
    update,
)

from rota.domain.ids import is_uuid
from rota.domain.states import TaskState
from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, add_seconds, among, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.tables import task_runs, workflow_runs
from rota.store.task_runs import RANK

_t = task_runs.c


class Outcome(NamedTuple):
    """What becomes of one attempt. It lands only while the attempt is running with this incarnation."""

    task_run_id: str
    attempt: int
    incarnation: str
    status: TaskState
    exit_code: int | None = None
    error_type: str | None = None
    error: str | None = None
    output_json: str | None = None
    # For `retrying` (and `queued` after a lost worker): when it may be tried again.
    delay_seconds: float = 0.0
    is_failure: int = 0
    is_loss: int = 0
    # Lands only if the lease has run out.
    needs_expired_lease: bool = False
    usage_json: str | None = None
    is_unconfirmed: bool = False
    # For what the engine holds itself: lands only while it is held so. Then there is no incarnation.
    holder: str | None = None
    # A branch succeeds only once its output has been read.
    is_choice_known: bool = False
    # Told in the history, beside what every end tells.
    details: Mapping[str, Any] | None = None


class Landed(NamedTuple):
    id: str
    run_id: str
    namespace: str
    task_id: str
    attempt: int
    status: str
    downstream_count: int
    is_teardown: bool
    is_gated: bool
    map_index: int
    worker_id: str | None
    incarnation: str
    started_at: Any
    finished_at: Any


_outcomes = batch(
    "outcomes",
    id=Id(),
    attempt=Integer(),
    incarnation=String(36),
    status=String(20),
    exit_code=Integer(),
    error_type=String(40),
    error=Text(),
    output=Text(),
    delay_seconds=Float(),
    is_failure=Integer(),
    is_loss=Integer(),
    needs_expired_lease=Boolean(),
    usage=Text(),
    is_unconfirmed=Boolean(),
    holder=String(20),
    is_choice_known=Boolean(),
)
_before = task_runs.alias("before")
_located = (
    select(
        *_outcomes.c,
        # Looked up one by one, so that it is always done by index.
        select(_before.c.run_id).where(_before.c.id == _outcomes.c.id).scalar_subquery().label("run_id"),
    )
    .cte("located")
    .prefix_with("MATERIALIZED")
)
# Whoever changes what belongs to a run holds the run's row first, runs in the order of their ids: no deadlocks.
_targets = (
    select(*_located.c)
    .join(workflow_runs, workflow_runs.c.id == _located.c.run_id)
    .where(among(workflow_runs.c.id, select(_located.c.run_id).scalar_subquery()))
    .order_by(workflow_runs.c.id)
    .with_for_update(of=workflow_runs, key_share=True)
    .cte("targets")
)
_o = _targets.c
# Whoever asked for a cancel after the outcome was decided is not answered with another try.
_may_go_on = _t.cancel_requested_at.is_(None)
_is_queued = and_(_o.status == constant("queued"), _may_go_on)
_is_retrying = and_(_o.status == constant("retrying"), _may_go_on)
_is_owner = or_(
    and_(_o.holder.is_(None), _t.holder.is_(None), _t.incarnation == _o.incarnation), _t.holder == _o.holder
)
_wants_to_go_on = or_(_o.status == constant("queued"), _o.status == constant("retrying"))
_FINISH = (
    update(task_runs)
    .values(
        status=case((and_(_wants_to_go_on, not_(_may_go_on)), constant("cancelled")), else_=_o.status),
        exit_code=_o.exit_code,
        error_type=_o.error_type,
        error=_o.error,
        output=type_coerce(_o.output, Text()),
        usage=type_coerce(_o.usage, Text()),
        is_unconfirmed=_o.is_unconfirmed,
        failure_count=_t.failure_count + _o.is_failure,
        lost_count=_t.lost_count + _o.is_loss,
        lease_expires_at=None,
        holder=None,
        is_calling=False,
        finished_at=case((or_(_is_queued, _is_retrying), null()), else_=NOW),
        due_at=case((_is_retrying, add_seconds(NOW, _o.delay_seconds)), else_=null()),
        queued_at=case((_is_queued, NOW), else_=_t.queued_at),
        # Work that lost its worker keeps its place; the next try of a failure queues up again.
        claim_rank=case((and_(_is_queued, _o.is_failure == 1), RANK), else_=_t.claim_rank),
    )
    .where(
        _t.id == _o.id,
        among(_t.id, select(_o.id).scalar_subquery()),
        _t.status == constant("running"),
        _t.attempt == _o.attempt,
        _is_owner,
        or_(_o.needs_expired_lease.is_(False), _t.lease_expires_at < NOW),
        or_(_t.is_branch.is_(False), _o.is_choice_known, _o.status != constant("success")),
    )
    .returning(
        _t.id,
        _t.run_id,
        _t.namespace,
        _t.task_id,
        _t.attempt,
        _t.status,
        _t.downstream_count,
        _t.is_teardown,
        _t.is_gated,
        _t.map_index,
        _t.worker_id,
        func.coalesce(_t.incarnation, ""),
        _t.started_at,
        _t.finished_at,
    )
)


async def finish_attempts(transaction: Transaction, outcomes: Sequence[Outcome]) -> list[Landed]:
    """Ends attempts; returns those that landed. Locks the runs of all, landed or not."""
    return [Landed(*row) for row in await transaction.rows(_FINISH, {"outcomes": encode_rows(outcomes)})]


class Standing(NamedTuple):
    """What the decision about an attempt's end depends on."""

    id: str
    run_id: str
    namespace: str
    task_id: str
    status: str
    attempt: int
    incarnation: str | None
    holder: str | None
    failure_count: int
    retry_count: int
    lost_count: int
    max_deliveries: int
    is_branch: bool
    is_cancelling: bool


_asked = batch("asked", id=Id())
_STANDINGS = select(
    _t.id,
    _t.run_id,
    _t.namespace,
    _t.task_id,
    _t.status,
    _t.attempt,
    _t.incarnation,
    _t.holder,
    _t.failure_count,
    _t.retry_count,
    _t.lost_count,
    _t.max_deliveries,
    _t.is_branch,
    _t.cancel_requested_at.is_not(None),
).where(within(_t.id, select(_asked.c.id).scalar_subquery()))


async def read_standings(transaction: Transaction, task_run_ids: Sequence[str]) -> dict[str, Standing]:
    """How these task runs stand now."""
    parameters = {"asked": encode_rows([(item,) for item in set(task_run_ids) if is_uuid(item)])}
    return {row[0]: Standing(*row) for row in await transaction.rows(_STANDINGS, parameters)}


# Of those that are gated the engine may have to start some itself, and for that their runs are locked first.
_due = (
    select(_t.id)
    .where(_t.status == constant("retrying"), _t.due_at <= NOW, _t.is_gated.is_(False))
    .order_by(_t.due_at)
    .limit(bindparam("at_most", type_=Integer()))
    .with_for_update(skip_locked=True)
    .cte("due")
)
_RELEASE_DUE = (
    update(task_runs)
    .values(status="queued", claim_rank=RANK, queued_at=NOW, due_at=None)
    .where(_t.id == _due.c.id, _t.status == constant("retrying"))
    .returning(_t.id, _t.run_id, _t.namespace)
)


async def queue_due_retries(transaction: Transaction, limit: int) -> Sequence[Any]:
    """Queues the retries whose time has come, but for those that are gated."""
    return await transaction.rows(_RELEASE_DUE, {"at_most": limit})


_NEXT_DUE = select(func.min(_t.due_at), NOW).where(_t.status == constant("retrying"))


async def read_next_due(transaction: Transaction) -> tuple[Any, Any]:
    """When the next retry is due (None if there is none), and the time now."""
    row = await transaction.row(_NEXT_DUE)
    return (row[0], row[1]) if row else (None, None)
