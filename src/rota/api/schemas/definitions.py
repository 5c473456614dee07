"""Workflows, their tasks, and versions; pools."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Body as FromBody
from pydantic import Field, WithJsonSchema, field_validator

from rota.api.schemas.base import Body, FieldFault, Shape
from rota.api.schemas.schedules import Schedule
from rota.domain.job import JOB_FIELDS
from rota.domain.job_bulk import MOST_JOBS
from rota.domain.spec_parse import WORKFLOW_FIELDS
from rota.domain.spec_task import TASK_FIELDS


def _describe_object(title: str, fields: frozenset[str], required: list[str], note: str) -> dict[str, Any]:
    """The JSON Schema of an object that the domain reads itself: it names the fields, the reference says more."""
    return {
        "title": title,
        "type": "object",
        "description": note,
        "properties": {name: {} for name in sorted(fields)},
        "required": required,
        "additionalProperties": False,
    }


WorkflowDefinition = Annotated[
    dict[str, Any],
    FromBody(
        openapi_examples={
            "two tasks": {
                "value": {
                    "name": "nightly",
                    "schedule_cron": "0 2 * * *",
                    "timezone": "Europe/Riga",
                    "tasks": [
                        {"name": "extract", "command": "./extract.sh", "retry_count": 2},
                        {"name": "report", "command": "make report", "depends_on": ["extract"]},
                    ],
                }
            }
        }
    ),
    WithJsonSchema(
        _describe_object(
            "WorkflowDefinition",
            frozenset(WORKFLOW_FIELDS),
            ["name"],
            "A workflow with its tasks and schedules, or a bare one to which tasks are added later.",
        )
    ),
]
WorkflowChange = Annotated[
    dict[str, Any],
    FromBody(openapi_examples={"pause": {"value": {"is_active": False}}}),
    WithJsonSchema(
        _describe_object(
            "WorkflowChange",
            frozenset(WORKFLOW_FIELDS),
            [],
            "Fields of the definition to be replaced; null gives a field its default back.",
        )
    ),
]
TaskDefinition = Annotated[
    dict[str, Any],
    FromBody(openapi_examples={"shell": {"value": {"name": "load", "command": "./load.sh"}}}),
    WithJsonSchema(
        _describe_object("TaskDefinition", frozenset(TASK_FIELDS), ["name"], "One task, with exactly one action.")
    ),
]
JobDefinition = Annotated[
    dict[str, Any],
    FromBody(
        openapi_examples={
            "now": {"value": {"name": "hello", "command": "echo hello"}},
            "webhook, once": {
                "value": {
                    "type": "unico",
                    "timestamp": "2030-12-25T10:00:00Z",
                    "webhook_url": "https://example.com/hook",
                    "payload": {"message": "hello"},
                }
            },
        }
    ),
    WithJsonSchema(
        _describe_object("JobDefinition", frozenset(JOB_FIELDS), [], "One action: now, once, or on a schedule.")
    ),
]
JobDefinitions = Annotated[
    dict[str, Any],
    FromBody(openapi_examples={"two": {"value": {"jobs": [{"command": "echo 1"}, {"command": "echo 2"}]}}}),
    WithJsonSchema(
        {
            "title": "JobDefinitions",
            "type": "object",
            "properties": {
                "jobs": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MOST_JOBS,
                    "items": _describe_object("JobDefinition", frozenset(JOB_FIELDS), [], "One job, as in POST /jobs."),
                }
            },
            "required": ["jobs"],
            "additionalProperties": False,
        }
    ),
]


class Workflow(Shape):
    """A workflow, without its tasks."""

    id: str
    namespace: str
    name: str
    kind: str
    description: str
    tags: list[str]
    is_active: bool
    schedule_cron: str = Field(description="The first schedule's expression; empty when there is none.")
    next_run_at: datetime | None
    max_active_runs: int | None
    max_active_tasks: int | None
    current_version: int = Field(description="0 until there are tasks.")
    version: int = Field(description="Counts changes; the ETag.")
    created_at: datetime
    updated_at: datetime


class WorkflowDetail(Workflow):
    """A workflow with its definition, which can be sent back by PUT."""

    definition: dict[str, Any]
    schedules: list[Schedule]


class Applied(Workflow):
    """What PUT has made of a workflow."""

    is_new: bool
    is_changed: bool = Field(description="Whether there is a new version.")


class Task(Shape):
    """A task of a workflow's current version."""

    id: str
    workflow_id: str
    name: str
    kind: str
    command: str | list[str] | None
    depends_on: list[str]
    retry_count: int
    retry_delay_seconds: float
    timeout_seconds: float | None
    priority: int
    created_at: datetime
    definition: dict[str, Any]


class Tasks(Shape):
    items: list[Task]
    total: int
    next_cursor: None = None


class Version(Shape):
    """A version, which never changes."""

    id: str
    workflow_id: str
    number: int
    content_hash: str
    created_at: datetime


class VersionDetail(Version):
    definition: dict[str, Any]


class Validation(Shape):
    """Whether a definition would be accepted."""

    is_valid: bool
    errors: list[FieldFault]
    definition: dict[str, Any] | None = Field(description="The canonical form, without defaults.")


class PoolBody(Body):
    slots: Annotated[int, Field(ge=1, le=1_000_000)]
    description: Annotated[str, Field(max_length=20_000)] = ""


class Pool(Shape):
    """Named slots that limit how many attempts run at once."""

    namespace: str
    name: str
    slots: int
    used_slots: int
    queued: int
    description: str
    created_at: datetime
    updated_at: datetime


class RateLimit(Body):
    """So many starts in so many seconds, and how many at once after a rest."""

    starts: Annotated[int, Field(le=1_000_000)]
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 1.0
    burst: Annotated[int | None, Field(ge=1, le=1_000_000)] = None

    @field_validator("starts")
    @classmethod
    def _refuse_none(cls, starts: int) -> int:
        if starts < 1:
            raise ValueError("must be at least 1: to let nothing start, send is_paused; to limit what runs, use a pool")
        return starts


class QueueBody(Body):
    rate_limit: RateLimit | None = None
    is_paused: bool = False
    description: Annotated[str, Field(max_length=20_000)] = ""


class Queue(Shape):
    """What may start of a queue."""

    namespace: str
    name: str
    rate_limit: RateLimit | None
    is_paused: bool
    queued: int
    # When the next one may start, as far as the rate goes; null while it is paused or without a rate.
    next_start_at: datetime | None
    description: str
    created_at: datetime
    updated_at: datetime


class Queues(Shape):
    items: list[Queue]
    total: int
    next_cursor: None = None


class Pools(Shape):
    items: list[Pool]
    total: int
    next_cursor: None = None
