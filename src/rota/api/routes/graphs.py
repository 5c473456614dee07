"""Runs as graphs, as rows of a grid, and beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime

from rota.api.answers import PageQuery, answer, encode_cursor
from rota.api.context import Api, Context, Namespace
from rota.api.lookup import require_run, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.graphs import (
    Comparison,
    Graph,
    Grid,
    GridRun,
    Node,
    ParamDifference,
    RunFacts,
    TaskComparison,
)
from rota.domain.access import Permission
from rota.domain.graph import build_graph, measure_depths
from rota.store.database import Transaction
from rota.store.reads import graphs
from rota.store.reads.graphs import STATE_LETTERS, GridFilter
from rota.store.reads.pages import Listing, TimeRange

router = APIRouter(prefix="/workflow-runs", tags=["runs"], route_class=LimitedRoute)
NO_TASK = "-"
LEGEND = {letter: str(state) for state, letter in STATE_LETTERS.items()}
# The names of a version's tasks never change.
_FACTS = [name for name in RunFacts.model_fields if name != "duration_seconds"]


@router.get("/grid", response_model=Grid)
@needs(Permission.VIEW)
async def read_grid(
    api: Context,
    namespace: Namespace,
    page: PageQuery,
    workflow: Annotated[str, Query(max_length=200, description="Its id or name.")],
    until: Annotated[AwareDatetime | None, Query(description="Only runs that were made before.")] = None,
) -> Response:
    """The runs of a workflow and the states of all their tasks: one letter for each."""
    found = await require_workflow(api, namespace, workflow)
    wanted = GridFilter(namespace, found.id, TimeRange(until=until))

    async def read(transaction: Transaction) -> tuple[Listing, dict[str, list[str]]]:
        listing = await graphs.read_grid(transaction, wanted, page)
        versions = dict.fromkeys(row.version_id for row in listing.rows)
        names = {version_id: await graphs.read_task_names(transaction, version_id) for version_id in versions}
        return listing, names

    listing, names = await api.database.read(read)
    # The newest version's tasks in their order, and then those that only older ones have.
    tasks = list(dict.fromkeys(name for version in names.values() for name in version))
    grid = Grid(
        workflow_id=found.id,
        workflow=found.name,
        tasks=tasks,
        legend=LEGEND,
        runs=[_make_row(row, names[row.version_id], tasks) for row in listing.rows],
        next_cursor=None if listing.next_after is None else encode_cursor(listing.next_after),
    )
    return answer(grid)


def _make_row(row: Any, names: Sequence[str], tasks: Sequence[str]) -> GridRun:
    cells = row.cells or ""
    if len(names) != len(tasks) or list(names) != list(tasks):
        letters = dict(zip(names, cells, strict=True))
        cells = "".join(letters.get(name, NO_TASK) for name in tasks)
    facts = {name: getattr(row, name) for name in GridRun.model_fields if name != "cells"}
    return GridRun(**facts, cells=cells)


@router.get("/{run_id}/graph", response_model=Graph)
@needs(Permission.VIEW)
async def read_graph(api: Context, namespace: Namespace, run_id: str) -> Response:
    """A run as a graph: its tasks with their states and levels, and what waits for what."""
    run = await require_run(api, namespace, run_id)

    async def read(transaction: Transaction) -> tuple[Sequence[Any], list[tuple[str, str]], dict[str, dict[str, int]]]:
        return (
            await graphs.read_nodes(transaction, run.id),
            await graphs.read_edges(transaction, run.id),
            await graphs.count_items(transaction, run.id),
        )

    rows, pairs, items = await api.database.read(read)
    places = {row.task_id: place for place, row in enumerate(rows)}
    upstreams: dict[str, list[str]] = {}
    for upstream_id, task_id in pairs:
        upstreams.setdefault(task_id, []).append(upstream_id)
    levels = measure_depths(build_graph(places, upstreams))
    graph = Graph(
        run_id=run.id,
        workflow=run.workflow,
        workflow_version=run.workflow_version,
        status=run.status,
        nodes=[_make_node(row, levels[row.task_id], items.get(row.task_id)) for row in rows],
        edges=sorted([places[upstream_id], places[task_id]] for upstream_id, task_id in pairs),
        levels=1 + max(levels.values(), default=-1),
    )
    return answer(graph)


def _make_node(row: Any, level: int, items: dict[str, int] | None) -> Node:
    return Node(
        id=row.id,
        task=row.name,
        kind=row.kind,
        status=row.status,
        trigger_rule=row.trigger_rule,
        is_teardown=row.is_teardown,
        level=level,
        attempt=row.attempt,
        started_at=row.started_at,
        finished_at=row.finished_at,
        items=items,
    )


@router.get("/{run_id}/compare/{other_id}", response_model=Comparison)
@needs(Permission.VIEW)
async def compare_runs(api: Context, namespace: Namespace, run_id: str, other_id: str) -> Response:
    """Two runs beside each other: parameters, versions, and each task's state and duration."""
    pair = [await require_run(api, namespace, wanted) for wanted in (run_id, other_id)]
    sides = [await _read_side(api, run.id) for run in pair]
    names = dict.fromkeys(name for side in sides for name in side)
    comparison = Comparison(
        runs=[_describe(run) for run in pair],
        params=_compare_params(*(run.params for run in pair)),
        tasks=[_compare_task(name, [side.get(name) for side in sides]) for name in names],
    )
    return answer(comparison)


async def _read_side(api: Api, run_id: str) -> dict[str, Any]:
    return {row.name: row for row in await api.database.read(lambda tx: graphs.read_nodes(tx, run_id))}


def _describe(run: Any) -> RunFacts:
    return RunFacts(**{name: getattr(run, name) for name in _FACTS}, duration_seconds=_measure(run))


def _measure(row: Any) -> float | None:
    if row.started_at is None or row.finished_at is None:
        return None
    return float((row.finished_at - row.started_at).total_seconds())


def _compare_params(first: dict[str, Any], second: dict[str, Any]) -> list[ParamDifference]:
    names = dict.fromkeys((*first, *second))
    # A parameter that is null is not one that is missing.
    return [
        ParamDifference(name=name, values=[first.get(name), second.get(name)])
        for name in names
        if (name in first, first.get(name)) != (name in second, second.get(name))
    ]


def _compare_task(name: str, rows: Sequence[Any]) -> TaskComparison:
    facts = [None if row is None else (row.status, row.attempt) for row in rows]
    return TaskComparison(
        task=name,
        is_different=facts[0] != facts[1],
        statuses=[row and row.status for row in rows],
        attempts=[row and row.attempt for row in rows],
        durations_seconds=[row and _measure(row) for row in rows],
    )
