"""Workflows, runs and task runs in the words of DAGs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from rota.api.schemas.base import Body, Shape

Instant = Annotated[datetime | None, Field(strict=False)]


class DagBody(Body):
    """What is to be saved; what is left out stays as it is, or has its default. A new one needs a name."""

    name: str | None = None
    description: str | None = None
    schedule: str | None = Field(default=None, description="A cron expression; empty for none.")
    start_date: Instant = None
    end_date: Instant = None
    tags: list[str] | None = None
    is_paused: bool | None = None
    tasks: list[dict[str, Any]] | None = Field(default=None, description="As in a workflow's definition.")


class Dag(Shape):
    """A workflow."""

    id: str
    name: str
    description: str
    schedule: str
    start_date: datetime | None = Field(description="Nothing is scheduled before it.")
    end_date: datetime | None
    tags: list[str]
    is_paused: bool
    version: int
    created_at: datetime
    updated_at: datetime


class DagRun(Shape):
    """A run of a workflow; its state is `queued` while it waits for its turn."""

    id: str
    dag_id: str
    execution_date: datetime
    state: str
    start_date: datetime | None
    end_date: datetime | None
    external_trigger: bool = Field(description="Whether something else than the schedule started it.")
    created_at: datetime


class TaskInstance(Shape):
    """A task run; its state is `queued` from its creation to its start."""

    id: str
    dag_run_id: str
    dag_id: str
    task_id: str = Field(description="The task's name.")
    state: str
    try_number: int
    max_tries: int
    start_date: datetime | None
    end_date: datetime | None
    duration: float | None = Field(description="Seconds from start to end.")
    error_message: str | None
    created_at: datetime
