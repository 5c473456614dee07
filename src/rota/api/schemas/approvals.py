"""Approvals and decisions about them."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from rota.api.schemas.base import Body, Shape
from rota.api.schemas.runs import LongText


class DecisionBody(Body):
    reason: LongText = ""


class Approval(Shape):
    """A task run that waits for somebody's decision."""

    id: str = Field(description="The task run's.")
    run_id: str
    workflow_id: str
    workflow: str
    task: str
    map_index: int
    message: str
    approvers: list[str] = Field(description="Who may decide; empty for everybody who may operate runs.")
    may_decide: bool = Field(description="Whether the caller may.")
    started_at: datetime
    due_at: datetime | None = Field(description="Until when; then `on_deadline` happens.")
    on_deadline: str


class Decided(Shape):
    """What has been decided, by whom and why. It is the task's output, too."""

    id: str
    status: str
    decision: str
    by: str
    reason: str
    at: datetime
