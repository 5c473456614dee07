"""Statements on nodes: server processes, and when they were last heard of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Float, String, Text, bindparam, case, delete, literal, select, update

from rota.store.database import Transaction
from rota.store.dialect import NOW, Id, Json, add_seconds, insert_new
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


_INSERT = insert_new(
    nodes,
    {
        "id": bindparam("new_id", type_=Id()),
        "name": bindparam("new_name", type_=String()),
        "url": bindparam("new_url", type_=Text()),
        "roles": bindparam("new_roles", type_=Json()),
        "software_version": bindparam("new_version", type_=String()),
        "status": bindparam("new_status", type_=String()),
        "report": bindparam("new_report", type_=Json()),
        "started_at": NOW,
        "last_heartbeat": NOW,
    },
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


_FIND = select(_n.id).where(
    (_n.id == bindparam("of_node", type_=Id())) | (_n.name == bindparam("of_name", type_=String())),
    _n.status == "active",
    _n.last_heartbeat >= _silent_since,
)


async def is_active(transaction: Transaction, reference: str, *, lost_after_seconds: float) -> bool:
    """Whether a node with this id or name has been heard of lately."""
    parameters = {"of_node": reference, "of_name": clean_text(reference), "minus_seconds": -lost_after_seconds}
    return await transaction.row(_FIND, parameters) is not None


_ANNOUNCED = (
    update(nodes)
    .values(url=bindparam("new_url", type_=Text()), last_heartbeat=NOW)
    .where(_n.name == bindparam("of_name", type_=String()), _n.status == "joining")
    .returning(_n.id)
)


async def announce(transaction: Transaction, facts: NodeFacts) -> None:
    """Somebody says that this node is on its way; saying it again makes no second one."""
    parameters = {"of_name": clean_text(facts.name), "new_url": clean_text(facts.url)}
    if not await transaction.rows(_ANNOUNCED, parameters):
        await insert_node(transaction, facts, status="joining")
