"""Backfills: the runs of past ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from rota.api.schemas.base import Body, Shape

Moment = Annotated[datetime, Field(strict=False)]


class BackfillBody(Body):
    """Which past ticks are to get runs."""

    from_at: Annotated[Moment, Field(alias="from", description="The first instant, with an offset.")]
    until_at: Annotated[Moment, Field(alias="to", description="The last instant, itself included; not in the future.")]
    schedule_id: Annotated[str | None, Field(max_length=100, description="Needed where there are several.")] = None
    direction: Annotated[Literal["forward", "backward"], Field(description="The oldest or the newest first.")] = (
        "forward"
    )
    only_missing: Annotated[
        bool, Field(description="Leave out what has a run that succeeded or is open, of whatever origin.")
    ] = True
    max_active: Annotated[int, Field(ge=1, le=1_000, description="Runs of it that are open at once.")] = 1
    max_runs: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Makes at most so many; needed beyond 10,000 ticks.")
    ] = None
    params: dict[str, Any] = Field(default_factory=dict)
    dry_run: Annotated[bool, Field(description="Only count.")] = False


class BackfillPlan(Shape):
    """What a backfill would come to."""

    schedule_id: str
    count: int | None = Field(description="Ticks in the range; null when there are more than are counted.")
    first_at: datetime | None
    last_at: datetime | None


class Backfill(Shape):
    """The runs of past ticks, made step by step within a limit."""

    id: str
    workflow_id: str
    schedule_id: str | None
    version_id: str = Field(description="The version that its runs execute.")
    definition: dict[str, Any] = Field(description="The rule, as it was when this was asked for.")
    from_at: datetime
    until_at: datetime
    direction: str
    only_missing: bool
    max_active: int
    max_runs: int | None
    params: dict[str, Any]
    status: str = Field(description="`running`, `paused`, `done` or `cancelled`.")
    cursor_at: datetime = Field(description="How far it has come.")
    tick_count: int | None
    created_count: int
    skipped_count: int
    runs: dict[str, int] = Field(description="How many of its runs are in which state.")
    created_at: datetime
    finished_at: datetime | None
