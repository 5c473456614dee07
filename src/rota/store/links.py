"""Statements on which workflows start runs of which others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Integer, String, bindparam, delete, insert, select

from rota.store.database import Transaction
from rota.store.dialect import Id, batch, constant, flag
from rota.store.encoding import encode_rows
from rota.store.tables import workflows
from rota.store.tables_links import workflow_links

_l = workflow_links.c
_w = workflows.c


class Link(NamedTuple):
    """A workflow that another definition names: as a task (`call`), or as what it waits for (`end`)."""

    kind: str
    position: int
    name: str
    status: str | None = None


_DELETE = delete(workflow_links).where(_l.workflow_id == bindparam("owner", type_=Id()))
_links = batch(
    "links",
    workflow_id=Id(),
    namespace=String(200),
    kind=String(20),
    position=Integer(),
    name=String(200),
    status=String(20),
)
_INSERT = insert(workflow_links).from_select(list(_links.c.keys()), select(*_links.c))
ROWS_PER_STATEMENT = 1000


async def replace_links(transaction: Transaction, workflow_id: str, namespace: str, links: Sequence[Link]) -> None:
    """Makes these the links of a workflow."""
    await transaction.run(_DELETE, {"owner": workflow_id})
    for start in range(0, len(links), ROWS_PER_STATEMENT):
        rows = [(workflow_id, namespace, *link) for link in links[start : start + ROWS_PER_STATEMENT]]
        await transaction.run(_INSERT, {"links": encode_rows(rows)})


_sources = batch("sources", name=String(200))
_namespace = bindparam("namespace", type_=String())
_is_others = _l.workflow_id != bindparam("apart_from", type_=Id())
_CALLED = (
    select(_w.name.label("source"), _l.name.label("target"))
    .join(workflow_links, _l.workflow_id == _w.id)
    .join(_sources, _sources.c.name == _w.name)
    .where(_w.namespace == _namespace, _w.kind == constant("workflow"), _l.kind == constant("call"), _is_others)
)
_LISTENING = (
    select(_l.name.label("source"), _w.name.label("target"))
    .join(workflows, _w.id == _l.workflow_id)
    .join(_sources, _sources.c.name == _l.name)
    .where(_l.namespace == _namespace, _w.kind == constant("workflow"), _l.kind == constant("end"), _is_others)
)


async def read_started(
    transaction: Transaction, namespace: str, names: Iterable[str], *, apart_from: str
) -> list[tuple[str, str]]:
    """(one of these workflows, a workflow that its runs start runs of), by name, as all definitions but one say."""
    sources = encode_rows([(name,) for name in names])
    parameters = {"sources": sources, "namespace": namespace, "apart_from": apart_from}
    rows = [*await transaction.rows(_CALLED, parameters), *await transaction.rows(_LISTENING, parameters)]
    return [(row.source, row.target) for row in rows]


class Listener(NamedTuple):
    """A workflow that starts when runs of another one end so."""

    source_id: str
    source_name: str
    workflow_id: str
    version_id: str
    status: str


_ended = batch("ended_workflows", id=Id())
_source = workflows.alias("source")
_LISTENERS = (
    select(_source.c.id, _source.c.name, _l.workflow_id, _w.current_version_id, _l.status)
    .select_from(
        _ended.join(_source, _source.c.id == _ended.c.id)
        .join(workflow_links, (_l.namespace == _source.c.namespace) & (_l.name == _source.c.name))
        .join(workflows, _w.id == _l.workflow_id)
    )
    .where(
        _l.kind == constant("end"),
        _source.c.kind == constant("workflow"),
        flag(_w.is_active),
        _w.current_version_id.is_not(None),
    )
    .order_by(_l.workflow_id, _l.position)
    # Held against deletion.
    .with_for_update(of=workflows, read=True, key_share=True)
)


async def read_listeners(transaction: Transaction, workflow_ids: Iterable[str]) -> list[Listener]:
    """The active workflows, with tasks, that start when runs of these end."""
    parameters = {"ended_workflows": encode_rows([(workflow_id,) for workflow_id in sorted(set(workflow_ids))])}
    return [Listener(*row) for row in await transaction.rows(_LISTENERS, parameters)]
