"""Live events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from rota.api.schemas.base import Questions, Shape

MAX_SEQ = 2**62


class EventQuestions(Questions):
    """Which events are wanted."""

    type: Annotated[
        list[Literal["workflow_status", "task_status", "worker_heartbeat"]],
        Field(default_factory=list, max_length=10, description="May be repeated; all of them if left out."),
    ]
    workflow: Annotated[str | None, Field(max_length=200, description="Its id or name.")] = None
    run: Annotated[str | None, Field(max_length=100, description="The id of a workflow run.")] = None
    since: Annotated[
        int | None,
        Field(ge=0, le=MAX_SEQ, description="The last `seq` that is known already; from now on if left out."),
    ] = None


class EventSink(Shape):
    """Where events are delivered to, and how far this has come."""

    name: str
    seq: int = Field(description="Everything up to this change has been delivered.")
    failures: int = Field(description="In a row.")
    failing_since: datetime | None
    error: str | None = Field(description="Why the last delivery failed.")
    disabled_at: datetime | None = Field(description="It failed for too long, and gets nothing until it is enabled.")
    updated_at: datetime
