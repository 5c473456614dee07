"""Statements on nodes: server processes, and when they were last heard of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Float, String, Text, bindparam, case, delete, insert, literal, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Json, add_seconds
from rota.store.encoding import clean_text
from rota.store.tables_service import nodes

_n = nodes.c
_is_it = _n.id == bindparam("of_node", type_=Id())


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node says of itself."""

    id: str
    name: str
    url: str = ""
    roles: tuple[str, ...] = ()
    software_version: str = ""
    # What it measures of itself: memory, how its tasks ended.
    report: Mapping[str, Any] = field(default_factory=dict)


_INSERT = insert(nodes).values(
    id=bindparam("new_id", type_=Id()),
    name=bindparam("new_name", type_=String()),
    url=bindparam("new_url", type_=Text()),
    roles=bindparam("new_roles", type_=Json()),
    software_version=bindparam("new_version", type_=String()),
    status=bindparam("new_status", type_=String()),
    report=bindparam("new_report", type_=Json()),
    started_at=NOW,
    last_heartbeat=NOW,
)
_BEAT = (
    update(nodes)
    .values(status="active", report=bindparam("new_report", type_=Json()), last_heartbeat=NOW)
    .where(_is_it)
    .returning(_n.id)
)


async def insert_node(transaction: Transaction, facts: NodeFacts, *, status: str = "active") -> None:
    """A node that was not known so far."""
    await transaction.run(
        _INSERT,
        {
            "new_id": facts.id,
            "new_name": clean_text(facts.name),
            "new_url": clean_text(facts.url),
            "new_roles": list(facts.roles),
            "new_version": clean_text(facts.software_version),
            "new_status": status,
            "new_report": dict(facts.report),
        },
    )


async def beat(transaction: Transaction, node_id: str, report: Mapping[str, Any]) -> bool:
    """Notes that a node is alive; False if it is not known (any more)."""
    return await transaction.row(_BEAT, {"of_node": node_id, "new_report": dict(report)}) is not None


_LEAVE = update(nodes).values(status="left", last_heartbeat=NOW).where(_is_it)


async def leave(transaction: Transaction, node_id: str) -> None:
    """The node has stopped."""
    await transaction.run(_LEAVE, {"of_node": node_id})


_silent_since = add_seconds(NOW, bindparam("minus_seconds", type_=Float()))
_FORGET = delete(nodes).where(_n.last_heartbeat < _silent_since)


async def forget_silent(transaction: Transaction, seconds: float) -> int:
    """Deletes nodes that have not been heard of for so long."""
    return await transaction.run(_FORGET, {"minus_seconds": -seconds})


_LIST = select(
    _n.id,
    _n.name,
    _n.url,
    _n.roles,
    _n.software_version.label("version"),
    case(
        (_n.status != "active", _n.status), (_n.last_heartbeat < _silent_since, literal("lost")), else_=_n.status
    ).label("status"),
    _n.report,
    _n.started_at,
    _n.last_heartbeat,
    NOW.label("now"),
).order_by(_n.id)


async def list_nodes(transaction: Transaction, *, lost_after_seconds: float) -> Sequence[Any]:
    """All nodes; those that were not heard of for so long count as lost."""
    return await transaction.rows(_LIST, {"minus_seconds": -lost_after_seconds})


_FIND = select(_n.id).where(_is_it)


async def is_known(transaction: Transaction, node_id: str) -> bool:
    return await transaction.row(_FIND, {"of_node": node_id}) is not None
