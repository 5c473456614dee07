"""Runs as graphs, grids and pairs; versions and what differs between them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from rota.api.schemas.base import Body, Shape

Pair = Annotated[list[int], Field(min_length=2, max_length=2)]


class Node(Shape):
    """A task in a run."""

    id: str = Field(description="Of the task run.")
    task: str
    kind: str
    status: str
    trigger_rule: str
    is_teardown: bool
    level: int = Field(description="The length of the longest way to it: the column where a drawing puts it.")
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None
    items: dict[str, int] | None = Field(description="Of a mapped task: how many items are in each state.")


class Graph(Shape):
    """A run as a graph. The nodes stand in the order of the definition."""

    run_id: str
    workflow: str
    workflow_version: int
    status: str
    nodes: list[Node]
    edges: list[Pair] = Field(description="Places in `nodes`: the second waits for the first.")
    levels: int


class GridRun(Shape):
    id: str
    status: str
    trigger: str
    workflow_version: int
    logical_date: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cells: str = Field(description="A letter for each of `tasks`; see `legend`.")


class Grid(Shape):
    """The tasks of a workflow and its runs, the newest first."""

    workflow_id: str
    workflow: str
    tasks: list[str]
    legend: dict[str, str] = Field(description="The state that a letter stands for; null where there is no such task.")
    runs: list[GridRun]
    next_cursor: str | None = Field(description="Send it as `cursor` for older runs; null when there are none.")


class RunFacts(Shape):
    """One side of a comparison."""

    id: str
    workflow: str
    workflow_version: int
    status: str
    trigger: str
    logical_date: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_seconds: float | None


class ParamDifference(Shape):
    name: str
    values: list[Any] = Field(description="In the first run and in the second; null where it has none.")


class TaskComparison(Shape):
    """A task in both runs; null where a run does not have it."""

    task: str
    is_different: bool = Field(description="Whether it ended differently, or took another number of attempts.")
    statuses: list[str | None]
    attempts: list[int | None]
    durations_seconds: list[float | None] = Field(description="Of the last attempts.")


class Comparison(Shape):
    """Two runs beside each other."""

    runs: list[RunFacts]
    params: list[ParamDifference] = Field(description="Those that differ.")
    tasks: list[TaskComparison]


class FieldChange(Shape):
    """A field before and after; null where it has its default."""

    field: str
    old: Any
    new: Any


class TaskChange(Shape):
    task: str
    fields: list[FieldChange]


class VersionDiff(Shape):
    """What differs between two versions, from the older to the newer one as they were asked for."""

    workflow_id: str
    against: int = Field(description="0 is the workflow before it had tasks.")
    number: int
    is_same: bool
    fields: list[FieldChange]
    added: list[str]
    removed: list[str]
    changed: list[TaskChange]
    is_reordered: bool


class RollbackBody(Body):
    """Which version the workflow is to be again."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
