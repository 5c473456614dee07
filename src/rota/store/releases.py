"""Statements that count a task's end for the tasks that wait for it, and decide what becomes of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, Text, and_, case, cast, func, literal_column, null, or_, select, update

from rota.domain.rules import DECIDED_STATE, RULES, Clause, Decision
from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, among, batch, constant
from rota.store.encoding import encode_rows
from rota.store.tables import task_dependencies, task_runs
from rota.store.task_runs import RANK

_t = task_runs.c
_ZERO: ColumnElement[int] = literal_column("0", Integer())


def _clause_holds(clause: Clause, counters: Mapping[str, ColumnElement[Any]]) -> ColumnElement[bool]:
    tests = [counters[name] > _ZERO for name in clause.some] + [counters[name] == _ZERO for name in clause.none]
    return and_(*tests) if tests else _ZERO == _ZERO


def decide_in_sql(rule: ColumnElement[str], counters: Mapping[str, ColumnElement[Any]]) -> ColumnElement[str]:
    """`domain.rules.decide` as an expression, made from the same table: the state that a pending task run takes."""
    return case(
        *(
            (and_(rule == constant(name), _clause_holds(clause, counters)), constant(DECIDED_STATE[clause.decision]))
            for name, clauses in RULES.items()
            for clause in clauses
        ),
        else_=constant(DECIDED_STATE[Decision.WAIT]),
    )


class Released(NamedTuple):
    id: str
    run_id: str
    namespace: str
    task_id: str
    status: str
    downstream_count: int
    is_teardown: bool
    is_gated: bool


_ended = batch("ended", run_id=Id(), task_id=Id(), succeeded=Integer(), failed=Integer(), skipped=Integer())
_delta = (
    select(
        _ended.c.run_id,
        task_dependencies.c.task_id,
        func.count().label("ended"),
        func.sum(_ended.c.succeeded).label("succeeded"),
        func.sum(_ended.c.failed).label("failed"),
        func.sum(_ended.c.skipped).label("skipped"),
    )
    .join(task_dependencies, task_dependencies.c.depends_on_task_id == _ended.c.task_id)
    .where(among(task_dependencies.c.depends_on_task_id, select(_ended.c.task_id).scalar_subquery()))
    .group_by(_ended.c.run_id, task_dependencies.c.task_id)
    .cte("delta")
)
_child = task_runs.alias("child")
_located = (
    select(
        # Looked up one by one, so that it is always done by index.
        select(_child.c.id)
        .where(_child.c.run_id == _delta.c.run_id, _child.c.task_id == _delta.c.task_id, _child.c.map_index == -1)
        .scalar_subquery()
        .label("id"),
        _delta.c.ended,
        cast(_delta.c.succeeded, Integer).label("succeeded"),
        cast(_delta.c.failed, Integer).label("failed"),
        cast(_delta.c.skipped, Integer).label("skipped"),
    )
    .cte("located")
    .prefix_with("MATERIALIZED")
)
_counted: dict[str, ColumnElement[int]] = {
    "waiting": _t.upstream_waiting - _located.c.ended,
    "succeeded": _t.upstream_succeeded + _located.c.succeeded,
    "failed": _t.upstream_failed + _located.c.failed,
    "skipped": _t.upstream_skipped + _located.c.skipped,
}
_state = decide_in_sql(_t.trigger_rule, _counted)
_is_closed = or_(_state == constant("skipped"), _state == constant("upstream_failed"))
_RELEASE = (
    update(task_runs)
    .values(
        status=_state,
        upstream_waiting=_counted["waiting"],
        upstream_succeeded=_counted["succeeded"],
        upstream_failed=_counted["failed"],
        upstream_skipped=_counted["skipped"],
        claim_rank=case((_state == constant("queued"), RANK), else_=null()),
        queued_at=case((_state == constant("queued"), NOW), else_=null()),
        finished_at=case((_is_closed, NOW), else_=null()),
    )
    .where(
        _t.id == _located.c.id,
        among(_t.id, select(_located.c.id).scalar_subquery()),
        _t.status == constant("pending"),
    )
    .returning(_t.id, _t.run_id, _t.namespace, _t.task_id, _t.status, _t.downstream_count, _t.is_teardown, _t.is_gated)
)


_left_out = batch("left_out", run_id=Id(), task_id=Id(), reason=Text())
_left_found = (
    select(
        select(_child.c.id)
        .where(_child.c.run_id == _left_out.c.run_id, _child.c.task_id == _left_out.c.task_id, _child.c.map_index == -1)
        .scalar_subquery()
        .label("id"),
        _left_out.c.reason,
    )
    .cte("left_found")
    .prefix_with("MATERIALIZED")
)
_LEAVE_OUT = (
    update(task_runs)
    .values(status="skipped", error=_left_found.c.reason, finished_at=NOW)
    .where(
        _t.id == _left_found.c.id,
        among(_t.id, select(_left_found.c.id).scalar_subquery()),
        _t.status == constant("pending"),
    )
    .returning(*(_t[name] for name in Released._fields))
)


async def leave_out(transaction: Transaction, left_out: Sequence[tuple[str, str, str]]) -> list[Released]:
    """Skips the tasks of (run id, task id, reason) that still wait. The runs must be locked."""
    return [Released(*row) for row in await transaction.rows(_LEAVE_OUT, {"left_out": encode_rows(left_out)})]


async def release_dependents(
    transaction: Transaction, ended: Sequence[tuple[str, str, int, int, int]]
) -> list[Released]:
    """Counts (run id, task id, succeeded, failed, skipped) for those that wait, and decides what becomes of them.

    Returns every task run that it counted for; those that still wait have the status `pending`. The runs must be
    locked. A task run that has been decided no longer counts.
    """
    return [Released(*row) for row in await transaction.rows(_RELEASE, {"ended": encode_rows(ended)})]
