"""Statements on workflow runs: creation, counting down, ending, turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    update,
)

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, add_seconds, among, batch, constant, flag, insert_new, within
from rota.store.encoding import encode_json, encode_rows, to_microseconds
from rota.store.tables import workflow_runs, workflows

_r = workflow_runs.c


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be created."""

    id: str
    namespace: str
    workflow_id: str
    version_id: str
    trigger: str
    status: str
    task_count: int
    logical_at: datetime | None = None
    schedule_id: str | None = None
    params: dict[str, Any] | None = None
    note: str = ""
    is_limited: bool = False
    timeout_seconds: float | None = None
    labels: Mapping[str, str] | None = None
    rerun_of: str | None = None
    is_serial: bool = False
    is_watched: bool = False


_new = batch(
    "new_runs",
    id=Id(),
    namespace=String(200),
    workflow_id=Id(),
    version_id=Id(),
    schedule_id=Id(),
    trigger=String(20),
    status=String(20),
    logical_date=Instant(),
    params=Text(),
    note=Text(),
    task_count=Integer(),
    is_limited=Boolean(),
    timeout_seconds=Float(),
    labels=Text(),
    rerun_of=Id(),
    is_serial=Boolean(),
    is_watched=Boolean(),
)
_n = _new.c
_is_running = _n.status == constant("running")
_CREATE = insert_new(
    workflow_runs,
    {
        "id": _n.id,
        "namespace": _n.namespace,
        "workflow_id": _n.workflow_id,
        "version_id": _n.version_id,
        "schedule_id": _n.schedule_id,
        "trigger": _n.trigger,
        "status": _n.status,
        "logical_date": func.coalesce(_n.logical_date, NOW),
        "params": _n.params,
        "note": _n.note,
        "labels": _n.labels,
        "rerun_of": _n.rerun_of,
        "task_count": _n.task_count,
        "remaining": _n.task_count,
        "is_limited": _n.is_limited,
        "timeout_seconds": _n.timeout_seconds,
        "is_serial": _n.is_serial,
        "is_watched": _n.is_watched,
        "deadline_at": case((_is_running, add_seconds(NOW, _n.timeout_seconds)), else_=null()),
        "created_at": NOW,
        "started_at": case((_is_running, NOW), else_=null()),
    },
).returning(_r.id)


async def create_runs(transaction: Transaction, runs: Sequence[NewRun]) -> set[str]:
    """Creates runs; returns the ids of those that are new. A tick that has its run already makes none."""
    rows = [
        (
            run.id,
            run.namespace,
            run.workflow_id,
            run.version_id,
            run.schedule_id,
            run.trigger,
            run.status,
            to_microseconds(run.logical_at),
            encode_json(run.params or {}),
            run.note,
            run.task_count,
            run.is_limited,
            run.timeout_seconds,
            encode_json(run.labels) if run.labels else None,
            run.rerun_of,
            run.is_serial,
            run.is_watched,
        )
        for run in runs
    ]
    return {row.id for row in await transaction.rows(_CREATE, {"new_runs": encode_rows(rows)})}


class Settled(NamedTuple):
    id: str
    namespace: str
    workflow_id: str
    status: str
    remaining: int
    failed_count: int
    is_limited: bool
    is_serial: bool
    is_cancelling: bool

    @property
    def makes_room(self) -> bool:
        """Whether its end may let another run start."""
        return self.is_limited or self.is_serial


_tally = batch("tallies", id=Id(), ended=Integer(), failed=Integer())
_is_clean_end = and_(
    _r.remaining == _tally.c.ended, _r.failed_count + _tally.c.failed == 0, _r.cancel_requested_at.is_(None)
)
_COUNT_DOWN = (
    update(workflow_runs)
    .values(
        remaining=_r.remaining - _tally.c.ended,
        failed_count=_r.failed_count + _tally.c.failed,
        status=case((_is_clean_end, "success"), else_=_r.status),
        finished_at=case((_is_clean_end, NOW), else_=_r.finished_at),
    )
    .where(_r.id == _tally.c.id, among(_r.id, select(_tally.c.id).scalar_subquery()))
    .returning(
        _r.id,
        _r.namespace,
        _r.workflow_id,
        _r.status,
        _r.remaining,
        _r.failed_count,
        _r.is_limited,
        _r.is_serial,
        # Not compared here: in RETURNING, SQLite may answer IS NOT NULL wrongly.
        _r.cancel_requested_at,
    )
)


async def count_down(transaction: Transaction, tallies: Sequence[tuple[str, int, int]]) -> list[Settled]:
    """Takes (run id, task runs ended, of these failed) off the runs; a run that ended without any failure is done."""
    rows = await transaction.rows(_COUNT_DOWN, {"tallies": encode_rows(tallies)})
    return [Settled._make((*row[:-1], row[-1] is not None)) for row in rows]


_endings = batch("endings", id=Id(), status=String(20))
_END = (
    update(workflow_runs)
    .values(status=_endings.c.status, finished_at=NOW)
    .where(
        _r.id == _endings.c.id,
        among(_r.id, select(_endings.c.id).scalar_subquery()),
        _r.status.in_(["running", "pending"]),
        _r.remaining == 0,
    )
    .returning(_r.id, _r.status)
)


async def end_runs(transaction: Transaction, endings: Sequence[tuple[str, str]]) -> None:
    """Ends runs of which nothing remains with (run id, status)."""
    await transaction.rows(_END, {"endings": encode_rows(endings)})


_limits = batch("limits", id=Id())
_LOCK_WORKFLOWS = (
    select(workflows.c.id, workflows.c.max_active_runs)
    .where(workflows.c.id.in_(select(_limits.c.id)))
    .order_by(workflows.c.id)
    .with_for_update(key_share=True)
)
_COUNT_ACTIVE = (
    select(_r.workflow_id, func.count())
    .where(
        within(_r.workflow_id, select(_limits.c.id).scalar_subquery()),
        _r.status == constant("running"),
        flag(_r.is_limited),
    )
    .group_by(_r.workflow_id)
)


async def lock_free_turns(transaction: Transaction, workflow_ids: Sequence[str]) -> dict[str, int]:
    """How many more runs may be active in each workflow that limits them; holds the workflows until the commit."""
    parameters = {"limits": encode_rows([(workflow_id,) for workflow_id in sorted(set(workflow_ids))])}
    limits = await transaction.rows(_LOCK_WORKFLOWS, parameters)
    active = {row[0]: row[1] for row in await transaction.rows(_COUNT_ACTIVE, parameters)}
    unlimited = 1_000_000
    return {
        row.id: max(0, row.max_active_runs - active.get(row.id, 0)) if row.max_active_runs else unlimited
        for row in limits
    }


_ahead = workflow_runs.alias("ahead")
# Another run of the same schedule that goes first: it runs, or it has waited for longer.
_is_behind = (
    select(_ahead.c.id)
    .where(
        _ahead.c.schedule_id == _r.schedule_id,
        _ahead.c.finished_at.is_(None),
        _ahead.c.id != _r.id,
        or_(
            _ahead.c.status == constant("running"),
            _ahead.c.created_at < _r.created_at,
            and_(_ahead.c.created_at == _r.created_at, _ahead.c.id < _r.id),
        ),
    )
    .exists()
)
_WAITING = (
    select(_r.id)
    .where(
        _r.workflow_id == bindparam("workflow", type_=Id()),
        _r.status == constant("pending"),
        or_(_r.is_serial.is_(False), not_(_is_behind)),
    )
    .order_by(_r.created_at, _r.id)
    .limit(bindparam("turns", type_=Integer()))
    # One that is locked is being cancelled, and whoever does so may be waiting for the workflow.
    .with_for_update(of=workflow_runs, skip_locked=True, key_share=True)
)
_turns = batch("turn_runs", id=Id())
_START = (
    update(workflow_runs)
    .values(
        status="running",
        started_at=NOW,
        deadline_at=add_seconds(NOW, _r.timeout_seconds),
    )
    .where(within(_r.id, select(_turns.c.id).scalar_subquery()), _r.status == constant("pending"))
    .returning(_r.id, _r.namespace, _r.workflow_id)
)


class StartedRun(NamedTuple):
    id: str
    namespace: str
    workflow_id: str


async def start_waiting_runs(transaction: Transaction, workflow_id: str, turns: int) -> list[StartedRun]:
    """Starts the first `turns` waiting runs of a workflow, in the order of their creation."""
    waiting = await transaction.rows(_WAITING, {"workflow": workflow_id, "turns": turns})
    if not waiting:
        return []
    parameters = {"turn_runs": encode_rows([(row.id,) for row in waiting])}
    return [StartedRun(*row) for row in await transaction.rows(_START, parameters)]


class RunFacts(NamedTuple):
    """What never changes in a run, needed to render its tasks."""

    id: str
    workflow_id: str
    version_id: str
    logical_date: datetime
    params: dict[str, Any]


_wanted = batch("wanted_runs", id=Id())
_FACTS = select(_r.id, _r.workflow_id, _r.version_id, _r.logical_date, _r.params).where(
    within(_r.id, select(_wanted.c.id).scalar_subquery())
)


async def read_run_facts(transaction: Transaction, run_ids: Sequence[str]) -> list[RunFacts]:
    parameters = {"wanted_runs": encode_rows([(run_id,) for run_id in run_ids])}
    return [RunFacts(*row) for row in await transaction.rows(_FACTS, parameters)]


_LOCK = (
    select(_r.id, _r.namespace, _r.workflow_id, _r.version_id, _r.status, _r.remaining, _r.cancel_requested_at)
    .where(_r.id == bindparam("run", type_=Id()))
    .with_for_update(key_share=True)
)


async def lock_run(transaction: Transaction, run_id: str) -> Any | None:
    """The run, held until the commit."""
    return await transaction.row(_LOCK, {"run": run_id})


_held = batch("held_runs", id=Id())
_LOCK_MANY = (
    select(_r.id)
    .where(within(_r.id, select(_held.c.id).scalar_subquery()))
    .order_by(_r.id)
    .with_for_update(key_share=True)
)


async def lock_runs(transaction: Transaction, run_ids: Iterable[str]) -> None:
    """Holds these runs until the commit, in the order of their ids."""
    await transaction.run(_LOCK_MANY, {"held_runs": encode_rows([(run_id,) for run_id in sorted(set(run_ids))])})


_ANY_OPEN = (
    select(_r.id)
    .where(_r.workflow_id == bindparam("workflow", type_=Id()), _r.status.in_(["pending", "running"]))
    .limit(1)
)


async def has_open_runs(transaction: Transaction, workflow_id: str) -> bool:
    return await transaction.row(_ANY_OPEN, {"workflow": workflow_id}) is not None


_WAITING_WORKFLOWS = (
    select(_r.workflow_id)
    .where(_r.status == constant("pending"))
    .distinct()
    .order_by(_r.workflow_id)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_waiting_workflows(transaction: Transaction, limit: int) -> list[str]:
    """Workflows with runs that wait for their turn, in the order in which they are locked."""
    return [row.workflow_id for row in await transaction.rows(_WAITING_WORKFLOWS, {"at_most": limit})]


_OVERDUE = (
    select(_r.id)
    .where(_r.status == constant("running"), _r.deadline_at < NOW, _r.cancel_requested_at.is_(None))
    .order_by(_r.deadline_at)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_overdue(transaction: Transaction, limit: int) -> list[str]:
    """Runs that are over their time and not being cancelled yet."""
    return [row.id for row in await transaction.rows(_OVERDUE, {"at_most": limit})]
