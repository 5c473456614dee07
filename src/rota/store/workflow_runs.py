"""Statements on workflow runs: creation, counting down, ending, locks."""

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
    null,
    or_,
    select,
    update,
)

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, add_seconds, among, batch, constant, insert_new, within
from rota.store.encoding import encode_json, encode_rows, to_microseconds
from rota.store.tables import workflow_runs, workflows
from rota.store.tables_links import workflow_links

_r = workflow_runs.c


class Parent(NamedTuple):
    """What started a run: another run, by an attempt of one of its task runs or else by its end."""

    run_id: str
    # How many runs stand above the one that is started.
    depth: int
    task_run_id: str | None = None
    attempt: int | None = None


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
    parent: Parent | None = None
    backfill_id: str | None = None


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
    parent_run_id=Id(),
    depth=Integer(),
    parent_task_run_id=Id(),
    parent_attempt=Integer(),
    backfill_id=Id(),
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
        "parent_run_id": _n.parent_run_id,
        "depth": _n.depth,
        "parent_task_run_id": _n.parent_task_run_id,
        "parent_attempt": _n.parent_attempt,
        "backfill_id": _n.backfill_id,
        "deadline_at": case((_is_running, add_seconds(NOW, _n.timeout_seconds)), else_=null()),
        "created_at": NOW,
        "started_at": case((_is_running, NOW), else_=null()),
    },
).returning(_r.id)


async def create_runs(transaction: Transaction, runs: Sequence[NewRun]) -> set[str]:
    """Creates runs; returns the ids of those that are new. A tick that has its run already makes none, and so does
    an end that has started one of the same workflow."""
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
            *(run.parent or (None, 0, None, None)),
            run.backfill_id,
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
    is_untold: bool
    is_cancelling: bool

    @property
    def makes_room(self) -> bool:
        """Whether its end may let another run start."""
        return self.is_limited or self.is_serial


_tally = batch("tallies", id=Id(), ended=Integer(), failed=Integer())
_is_clean_end = and_(
    _r.remaining == _tally.c.ended, _r.failed_count + _tally.c.failed == 0, _r.cancel_requested_at.is_(None)
)
_listener = (
    select(workflow_links.c.workflow_id)
    .join(
        workflows, and_(workflows.c.namespace == workflow_links.c.namespace, workflows.c.name == workflow_links.c.name)
    )
    .where(
        workflows.c.id == _r.workflow_id,
        workflows.c.kind == constant("workflow"),
        workflow_links.c.kind == constant("end"),
    )
    .correlate(workflow_runs)
)
# Whom the end of a run concerns beyond itself.
_is_heard = or_(_r.parent_task_run_id.is_not(None), _listener.exists())
_COUNT_DOWN = (
    update(workflow_runs)
    .values(
        remaining=_r.remaining - _tally.c.ended,
        failed_count=_r.failed_count + _tally.c.failed,
        status=case((_is_clean_end, "success"), else_=_r.status),
        finished_at=case((_is_clean_end, NOW), else_=_r.finished_at),
        is_untold=case((_is_clean_end, _is_heard), else_=_r.is_untold),
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
        _r.is_untold,
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
    .values(status=_endings.c.status, finished_at=NOW, is_untold=_is_heard)
    .where(
        _r.id == _endings.c.id,
        among(_r.id, select(_endings.c.id).scalar_subquery()),
        _r.status.in_(["running", "pending"]),
        _r.remaining == 0,
    )
    .returning(_r.id, _r.is_untold)
)


async def end_runs(transaction: Transaction, endings: Sequence[tuple[str, str]]) -> bool:
    """Ends runs of which nothing remains with (run id, status); whether anybody else has to be told."""
    rows = await transaction.rows(_END, {"endings": encode_rows(endings)})
    return any(row.is_untold for row in rows)


class RunFacts(NamedTuple):
    """What never changes in a run, needed to render its tasks."""

    id: str
    workflow_id: str
    version_id: str
    logical_date: datetime
    params: dict[str, Any]
    parent_run_id: str | None
    depth: int


_wanted = batch("wanted_runs", id=Id())
_FACTS = select(*(_r[name] for name in RunFacts._fields)).where(within(_r.id, select(_wanted.c.id).scalar_subquery()))


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
    .where(
        _r.workflow_id == bindparam("workflow", type_=Id()),
        or_(_r.status.in_(["pending", "running"]), _r.is_untold.is_(True)),
    )
    .limit(1)
)


async def has_open_runs(transaction: Transaction, workflow_id: str) -> bool:
    """Whether a run has not ended, or those who wait for its end have not been told."""
    return await transaction.row(_ANY_OPEN, {"workflow": workflow_id}) is not None


_OVERDUE = (
    select(_r.id)
    .where(_r.status == constant("running"), _r.deadline_at < NOW, _r.cancel_requested_at.is_(None))
    .order_by(_r.deadline_at)
    .limit(bindparam("at_most", type_=Integer()))
)


async def find_overdue(transaction: Transaction, limit: int) -> list[str]:
    """Runs that are over their time and not being cancelled yet."""
    return [row.id for row in await transaction.rows(_OVERDUE, {"at_most": limit})]
