"""Statements for what people ask of runs that are on their way: cancel, and retry what has failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Integer, String, Text, bindparam, case, func, null, select, update

from rota.domain.states import RUN_OPEN
from rota.store.database import Transaction
from rota.store.definitions import ROWS_PER_STATEMENT
from rota.store.dialect import NOW, Id, add_seconds, among, batch, constant, within
from rota.store.encoding import encode_rows
from rota.store.releases import decide_in_sql, leave_out
from rota.store.tables import task_dependencies, task_runs, workflow_runs
from rota.store.task_runs import RANK

_t = task_runs.c
_r = workflow_runs.c

_REQUEST_CANCEL = (
    update(workflow_runs)
    .values(
        cancel_requested_at=func.coalesce(_r.cancel_requested_at, NOW),
        cancel_reason=func.coalesce(_r.cancel_reason, bindparam("reason", type_=Text())),
    )
    .where(_r.id == bindparam("run", type_=Id()), _r.status.in_(sorted(RUN_OPEN)))
    .returning(_r.id, _r.namespace, _r.workflow_id, _r.status)
)


async def request_cancel(transaction: Transaction, run_id: str, reason: str) -> Any | None:
    """Marks an open run as to be cancelled, and holds it; None if it has ended."""
    return await transaction.row(_REQUEST_CANCEL, {"run": run_id, "reason": reason})


_START_CANCELLED = (
    update(workflow_runs)
    .values(status="running", started_at=NOW)
    .where(_r.id == bindparam("run", type_=Id()), _r.status == constant("pending"))
)


async def start_to_clean_up(transaction: Transaction, run_id: str) -> None:
    """A run that is cancelled before its turn still runs its clean-up tasks."""
    await transaction.run(_START_CANCELLED, {"run": run_id})


class Stopped(NamedTuple):
    id: str
    task_id: str
    downstream_count: int
    is_teardown: bool
    is_gated: bool
    map_index: int
    old_status: str


_chosen = batch("chosen", id=Id(), old_status=String(20))
_STOP = (
    update(task_runs)
    .values(
        status="cancelled",
        finished_at=NOW,
        cancel_requested_at=NOW,
        due_at=None,
        holder=None,
        error_type="cancelled",
    )
    .where(
        _t.id == _chosen.c.id,
        among(_t.id, select(_chosen.c.id).scalar_subquery()),
        _t.status == _chosen.c.old_status,
        _t.lease_expires_at.is_(None),
    )
    .returning(_t.id, _t.task_id, _t.downstream_count, _t.is_teardown, _t.is_gated, _t.map_index)
)
_TERMINATE = (
    update(task_runs)
    .values(
        status="cancelled",
        finished_at=NOW,
        cancel_requested_at=NOW,
        due_at=None,
        holder=None,
        lease_expires_at=None,
        error_type="cancelled",
        # Nobody has said yet that the processes are gone.
        is_unconfirmed=_t.lease_expires_at.is_not(None),
    )
    .where(
        _t.id == _chosen.c.id,
        among(_t.id, select(_chosen.c.id).scalar_subquery()),
        _t.status == _chosen.c.old_status,
    )
    .returning(_t.id, _t.task_id, _t.downstream_count, _t.is_teardown, _t.is_gated, _t.map_index)
)
_ASK_RUNNING = (
    update(task_runs)
    .values(cancel_requested_at=func.coalesce(_t.cancel_requested_at, NOW))
    .where(within(_t.id, select(_chosen.c.id).scalar_subquery()), _t.status == constant("running"))
    .returning(_t.id)
)
# In the order of their ids, as everyone who locks several of them does.
_OPEN_OF_RUN = (
    select(_t.id, _t.task_id, _t.map_index, _t.status, _t.holder, _t.is_teardown)
    .where(_t.run_id == bindparam("run", type_=Id()), _t.status.in_(["pending", "queued", "retrying", "running"]))
    .order_by(_t.id)
    .with_for_update()
)


async def lock_open_task_runs(transaction: Transaction, run_id: str) -> Sequence[Any]:
    """The task runs of a run that are not final, held until the commit."""
    return await transaction.rows(_OPEN_OF_RUN, {"run": run_id})


async def stop_waiting(transaction: Transaction, chosen: Sequence[tuple[str, str]]) -> list[Stopped]:
    """Cancels (task run id, its status) that no worker has: what waits, and what the engine itself holds."""
    return await _end_chosen(transaction, _STOP, chosen)


async def terminate_task_runs(transaction: Transaction, chosen: Sequence[tuple[str, str]]) -> list[Stopped]:
    """Cancels (task run id, its status), those that a worker has included. Their run is locked."""
    return await _end_chosen(transaction, _TERMINATE, chosen)


async def _end_chosen(transaction: Transaction, statement: Any, chosen: Sequence[tuple[str, str]]) -> list[Stopped]:
    old = dict(chosen)
    ended: list[Stopped] = []
    for start in range(0, len(chosen), ROWS_PER_STATEMENT):
        part = encode_rows(chosen[start : start + ROWS_PER_STATEMENT])
        rows = await transaction.rows(statement, {"chosen": part})
        ended += [Stopped._make((*row, old[row.id])) for row in rows]
    return ended


async def ask_running(transaction: Transaction, task_run_ids: Sequence[str]) -> int:
    """Asks the workers to stop these; returns how many there are."""
    parameters = {"chosen": encode_rows([(task_run_id, "running") for task_run_id in task_run_ids])}
    return len(await transaction.rows(_ASK_RUNNING, parameters))


class RunTask(NamedTuple):
    id: str
    task_id: str
    map_index: int
    status: str
    trigger_rule: str
    is_teardown: bool


_TASKS_OF_RUN = (
    select(_t.id, _t.task_id, _t.map_index, _t.status, _t.trigger_rule, _t.is_teardown)
    .where(_t.run_id == bindparam("run", type_=Id()))
    .order_by(_t.id)
    .with_for_update()
)


async def lock_task_runs(transaction: Transaction, run_id: str) -> list[RunTask]:
    """Every task run of a run, held until the commit."""
    return [RunTask(*row) for row in await transaction.rows(_TASKS_OF_RUN, {"run": run_id})]


_again = batch("again", id=Id())
_QUEUE_AGAIN = (
    update(task_runs)
    .values(
        status="queued",
        claim_rank=RANK,
        queued_at=NOW,
        finished_at=None,
        failure_count=0,
        lost_count=0,
        cancel_requested_at=None,
    )
    .where(within(_t.id, select(_again.c.id).scalar_subquery()), _t.status == constant("failed"))
    .returning(_t.id, _t.namespace, _t.run_id, _t.is_gated)
)
_WAIT_AGAIN = (
    update(task_runs)
    .values(status="pending", finished_at=None, cancel_requested_at=None)
    .where(within(_t.id, select(_again.c.id).scalar_subquery()), _t.status == constant("upstream_failed"))
    .returning(_t.id, _t.namespace, _t.run_id)
)


async def queue_again(transaction: Transaction, task_run_ids: Sequence[str]) -> Sequence[Any]:
    """Failed task runs start over, with their whole budget of tries."""
    return await transaction.rows(_QUEUE_AGAIN, {"again": encode_rows([(item,) for item in task_run_ids])})


async def wait_again(transaction: Transaction, task_run_ids: Sequence[str]) -> Sequence[Any]:
    """Task runs that were given up because of a failure upstream wait once more."""
    return await transaction.rows(_WAIT_AGAIN, {"again": encode_rows([(item,) for item in task_run_ids])})


_upstream = task_runs.alias("upstream")
_sibling = task_runs.alias("sibling")
_tasks_of_run = select(_sibling.c.task_id).where(_sibling.c.run_id == bindparam("run", type_=Id())).scalar_subquery()
_tally = (
    select(
        task_dependencies.c.task_id,
        _upstream.c.run_id,
        func.sum(case((_upstream.c.status == constant("success"), 1), else_=0)).label("succeeded"),
        func.sum(case((_upstream.c.status.in_(["failed", "upstream_failed", "cancelled"]), 1), else_=0)).label(
            "failed"
        ),
        func.sum(case((_upstream.c.status == constant("skipped"), 1), else_=0)).label("skipped"),
        func.count().label("total"),
    )
    .join(task_dependencies, task_dependencies.c.depends_on_task_id == _upstream.c.task_id)
    .where(
        _upstream.c.run_id == bindparam("run", type_=Id()),
        _upstream.c.map_index == -1,
        among(task_dependencies.c.depends_on_task_id, _tasks_of_run),
    )
    .group_by(task_dependencies.c.task_id, _upstream.c.run_id)
    .cte("tally")
)
_RECOUNT = (
    update(task_runs)
    .values(
        upstream_waiting=_tally.c.total - _tally.c.succeeded - _tally.c.failed - _tally.c.skipped,
        upstream_succeeded=_tally.c.succeeded,
        upstream_failed=_tally.c.failed,
        upstream_skipped=_tally.c.skipped,
    )
    .where(
        _t.run_id == bindparam("run", type_=Id()),
        _t.task_id == _tally.c.task_id,
        _t.map_index == -1,
        _t.status == constant("pending"),
    )
)
_decided = (
    select(
        _t.id,
        decide_in_sql(
            _t.trigger_rule,
            {
                "waiting": _t.upstream_waiting,
                "succeeded": _t.upstream_succeeded,
                "failed": _t.upstream_failed,
                "skipped": _t.upstream_skipped,
            },
        ).label("state"),
    )
    .where(_t.run_id == bindparam("run", type_=Id()), _t.map_index == -1, _t.status == constant("pending"))
    .cte("decided")
)
_state = _decided.c.state
_DECIDE = (
    update(task_runs)
    .values(
        status=_state,
        claim_rank=case((_state == "queued", RANK), else_=null()),
        queued_at=case((_state == "queued", NOW), else_=null()),
        finished_at=case((_state.in_(["skipped", "upstream_failed"]), NOW), else_=null()),
    )
    .where(
        _t.id == _decided.c.id,
        among(_t.id, select(_decided.c.id).scalar_subquery()),
        _t.status == constant("pending"),
        _state != constant("pending"),
    )
    .returning(_t.id, _t.run_id, _t.namespace, _t.task_id, _t.status, _t.downstream_count, _t.is_teardown, _t.is_gated)
)


async def recount_and_decide(
    transaction: Transaction, run_id: str, left_out: Sequence[tuple[str, str, str]] = ()
) -> Sequence[Any]:
    """Counts the upstreams of everything that waits in a run from scratch; returns what is decided by it, and by the
    branches that left out (run id, task id, reason)."""
    await transaction.run(_RECOUNT, {"run": run_id})
    skipped = await leave_out(transaction, left_out) if left_out else []
    return [*skipped, *await transaction.rows(_DECIDE, {"run": run_id})]


_REOPEN = (
    update(workflow_runs)
    .values(
        status="running",
        finished_at=None,
        started_at=func.coalesce(_r.started_at, NOW),
        # A run that had ended has its whole time again.
        deadline_at=case((_r.status == constant("failed"), add_seconds(NOW, _r.timeout_seconds)), else_=_r.deadline_at),
        cancel_requested_at=None,
        cancel_reason=None,
        reviewed_at=None,
        remaining=bindparam("new_remaining", type_=Integer()),
        failed_count=bindparam("new_failed", type_=Integer()),
        version=_r.version + 1,
    )
    .where(_r.id == bindparam("run", type_=Id()), _r.status.in_(["failed", "running"]))
)


async def reopen_run(transaction: Transaction, run_id: str, *, remaining: int, failed_count: int) -> None:
    """A failed run goes on."""
    await transaction.run(_REOPEN, {"run": run_id, "new_remaining": remaining, "new_failed": failed_count})
