"""Schedules, the decisions about their ticks, and previews."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Body as FromBody
from pydantic import Field, WithJsonSchema

from rota.api.schemas.base import Body, Questions, Shape
from rota.domain.schedule_preview import PREVIEW_FIELDS

PreviewBody = Annotated[
    dict[str, Any],
    FromBody(
        openapi_examples={
            "a gap": {
                "value": {
                    "cron": "30 2 * * *",
                    "timezone": "America/New_York",
                    "from": "2030-03-09T00:00:00Z",
                    "count": 3,
                    "dst_gap": "after",
                }
            }
        }
    ),
    WithJsonSchema(
        {
            "title": "PreviewBody",
            "type": "object",
            "description": "A rule in the words of a schedule, from when on, and how many fires.",
            "properties": {name: {} for name in sorted(PREVIEW_FIELDS)},
            "additionalProperties": False,
        }
    ),
]


class Schedule(Shape):
    """A rule that creates runs."""

    id: str
    workflow_id: str
    position: int
    is_active: bool = Field(description="Neither it nor its workflow is paused.")
    is_paused: bool = Field(description="It is paused itself.")
    paused_reason: str
    definition: dict[str, Any]
    cursor_at: datetime = Field(description="The last moment that has been decided.")
    next_run_at: datetime | None
    missed_at: datetime | None = Field(description="The newest tick that was missed and did not run.")


class ListedSchedule(Schedule):
    """A schedule with the name of its workflow."""

    workflow: str


class Schedules(Shape):
    items: list[Schedule]
    total: int
    next_cursor: None = None


class ScheduleQuestions(Questions):
    """Which schedules are wanted."""

    state: Annotated[
        Literal["upcoming", "late", "missed", "paused", "finished"] | None,
        Field(description="`upcoming` and `late` come by their next time."),
    ] = None
    workflow: Annotated[str | None, Field(max_length=200, description="Its id or name.")] = None
    within_seconds: Annotated[float, Field(gt=0, le=366 * 86_400, description="How far back `missed` looks.")] = 86_400


class ScheduleChange(Body):
    """What can be changed of one schedule: whether it is paused. Its rule stands in the workflow's definition."""

    is_active: bool
    reason: Annotated[str, Field(max_length=10_000)] = ""


class Decision(Shape):
    """What was decided about ticks of a schedule."""

    seq: int
    decision: str = Field(
        description="`fired`, `buffered`, `replaced`, `skipped`, `missed`, `paused`, `resumed` or `rearmed`."
    )
    at: datetime
    details: dict[str, Any] | None = Field(description="Which ticks (`count`, `first_at`, `last_at`), runs, and why.")


class PreviewFire(Shape):
    at: datetime
    local: str = Field(description="The wall clock of the zone, with its offset.")
    note: str | None = Field(description="What a change of the clock does to it.")


class Preview(Shape):
    items: list[PreviewFire]
