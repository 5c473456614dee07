"""Statements on attempts and their logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Boolean, Integer, LargeBinary, String, Text, bindparam, insert, select

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Instant, among, batch, constant, insert_new, within
from rota.store.encoding import encode_rows
from rota.store.tables import attempts, task_logs, task_runs

_EARLIER = (
    "attempt",
    "run_id",
    "status",
    "worker_id",
    "incarnation",
    "started_at",
    "finished_at",
    "exit_code",
    "error_type",
    "error",
    "usage",
    "is_unconfirmed",
)
_new = batch(
    "new_attempts",
    task_run_id=Id(),
    attempt=Integer(),
    run_id=Id(),
    status=String(20),
    worker_id=Id(),
    incarnation=String(36),
    started_at=Instant(),
    exit_code=Integer(),
    error_type=String(40),
    error=Text(),
    usage=Text(),
    is_unconfirmed=Boolean(),
)
_RECORD = insert(attempts).from_select([*_new.c.keys(), "finished_at"], select(*_new.c, NOW))


async def keep_attempts(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Keeps attempts that another will follow: columns in the order of the table, without `finished_at`."""
    await transaction.run(_RECORD, {"new_attempts": encode_rows(rows)})


_failed = batch("failed_again", id=Id())
_is_kept = select(attempts.c.attempt).where(
    attempts.c.task_run_id == task_runs.c.id, attempts.c.attempt == task_runs.c.attempt
)
_KEEP_FAILED = insert(attempts).from_select(
    ["task_run_id", *_EARLIER],
    select(task_runs.c.id, *(task_runs.c[name] for name in _EARLIER)).where(
        within(task_runs.c.id, select(_failed.c.id).scalar_subquery()),
        task_runs.c.status == constant("failed"),
        task_runs.c.attempt > 0,
        # It may have been kept already: then it is not what made the task run fail.
        _is_kept.scalar_subquery().is_(None),
    ),
)


async def keep_failed_attempts(transaction: Transaction, task_run_ids: Sequence[str]) -> None:
    """Keeps the last attempts of failed task runs that are about to start over."""
    await transaction.run(_KEEP_FAILED, {"failed_again": encode_rows([(item,) for item in task_run_ids])})


_INSERT_LOG = insert_new(
    task_logs,
    {
        "task_run_id": bindparam("log_task_run_id", type_=Id()),
        "attempt": bindparam("log_attempt", type_=Integer()),
        "offset": bindparam("log_offset", type_=BigInteger()),
        "data": bindparam("log_data", type_=LargeBinary()),
        "created_at": NOW,
    },
)


async def append_logs(transaction: Transaction, chunks: Sequence[tuple[str, int, int, bytes]]) -> None:
    """Keeps (task run id, attempt, offset, bytes). A chunk that is there already is left as it is."""
    for task_run_id, attempt, offset, data in chunks:
        await transaction.run(
            _INSERT_LOG,
            {"log_task_run_id": task_run_id, "log_attempt": attempt, "log_offset": offset, "log_data": data},
        )


_l = task_logs.c
_READ_LOG = (
    select(_l.attempt, _l.offset, _l.data)
    .where(
        _l.task_run_id == bindparam("log_of", type_=Id()),
        _l.attempt == bindparam("log_attempt", type_=Integer()),
        _l.offset >= bindparam("from_offset", type_=BigInteger()),
    )
    .order_by(_l.offset)
    .limit(bindparam("chunk_limit", type_=Integer()))
)


async def read_log(
    transaction: Transaction, task_run_id: str, attempt: int, *, from_offset: int = 0, limit: int = 1000
) -> list[tuple[int, bytes]]:
    """(offset, bytes) of an attempt's log, in order."""
    rows = await transaction.rows(
        _READ_LOG,
        {"log_of": task_run_id, "log_attempt": attempt, "from_offset": from_offset, "chunk_limit": limit},
    )
    return [(row.offset, row.data) for row in rows]


_owned = batch("owned", id=Id(), attempt=Integer(), incarnation=String(36))
_OWNED = (
    select(task_runs.c.id, task_runs.c.attempt, task_runs.c.incarnation)
    .join(_owned, _owned.c.id == task_runs.c.id)
    .where(
        among(task_runs.c.id, select(_owned.c.id).scalar_subquery()),
        task_runs.c.status == constant("running"),
        task_runs.c.attempt == _owned.c.attempt,
        task_runs.c.incarnation == _owned.c.incarnation,
    )
)


async def find_owned(transaction: Transaction, keys: Sequence[tuple[str, int, str]]) -> set[tuple[str, int, str]]:
    """Which of (task run id, attempt, incarnation) are running right now."""
    return {(row[0], row[1], row[2]) for row in await transaction.rows(_OWNED, {"owned": encode_rows(keys)})}
