"""Statements on event sinks: how far each has come, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import BigInteger, Float, String, Text, bindparam, case, func, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, add_seconds, insert_new
from rota.store.encoding import clean_text
from rota.store.tables_service import event_sinks

_s = event_sinks.c
_named = _s.name == bindparam("of_sink", type_=String())
_seq = bindparam("new_seq", type_=BigInteger())
MOST_ERROR_CHARACTERS = 500


class Sink(NamedTuple):
    """How far a sink has come."""

    name: str
    seq: int
    failures: int
    failing_since: datetime | None
    error: str | None
    disabled_at: datetime | None
    updated_at: datetime


_READ = select(*event_sinks.c).order_by(_s.name)
_INSERT = insert_new(event_sinks, {"name": bindparam("of_sink", type_=String()), "seq": _seq, "updated_at": NOW})


async def read_sinks(transaction: Transaction) -> Sequence[Sink]:
    return [Sink(*row) for row in await transaction.rows(_READ)]


async def read_sink(transaction: Transaction, name: str) -> Sink | None:
    row = await transaction.row(_READ.where(_named), {"of_sink": name})
    return None if row is None else Sink(*row)


async def add_sink(transaction: Transaction, name: str, seq: int) -> None:
    """A sink that is to get everything after this change; one that is known already stays where it is."""
    await transaction.run(_INSERT, {"of_sink": name, "new_seq": seq})


_MOVE = (
    update(event_sinks)
    .values(seq=_seq, failures=0, failing_since=None, error=None, updated_at=NOW)
    .where(_named, _s.seq <= _seq)
)


async def move_sink(transaction: Transaction, name: str, seq: int) -> None:
    """Everything up to this change has been delivered."""
    await transaction.run(_MOVE, {"of_sink": name, "new_seq": seq})


_since = func.coalesce(_s.failing_since, NOW)
_too_long = _since < add_seconds(NOW, bindparam("minus_seconds", type_=Float()))
_FAIL = (
    update(event_sinks)
    .values(
        failures=_s.failures + 1,
        failing_since=_since,
        error=bindparam("why", type_=Text()),
        disabled_at=case((_too_long, NOW), else_=_s.disabled_at),
        updated_at=NOW,
    )
    .where(_named)
    .returning(*event_sinks.c)
)


async def note_failure(transaction: Transaction, name: str, error: str, *, give_up_seconds: float) -> Sink | None:
    """A delivery failed; a sink that has taken nothing for so long is disabled."""
    why = clean_text(error)[:MOST_ERROR_CHARACTERS]
    row = await transaction.row(_FAIL, {"of_sink": name, "why": why, "minus_seconds": -give_up_seconds})
    return None if row is None else Sink(*row)


_ENABLE = (
    update(event_sinks)
    .values(disabled_at=None, failures=0, failing_since=None, updated_at=NOW)
    .where(_named)
    .returning(_s.name)
)


async def enable_sink(transaction: Transaction, name: str) -> bool:
    """Tries a disabled sink again, from where it was."""
    return await transaction.row(_ENABLE, {"of_sink": name}) is not None
