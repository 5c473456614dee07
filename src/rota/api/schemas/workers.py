"""Workers, and what the worker protocol says."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from rota.api.schemas.base import Body, Questions, Shape

UUID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
Word = Annotated[str, Field(min_length=1, max_length=200)]
TaskRunId = Annotated[str, Field(pattern=UUID_PATTERN)]
ExitCode = Annotated[int, Field(ge=-2_147_483_648, le=2_147_483_647)]
AttemptNumber = Annotated[int, Field(ge=0, le=2_147_483_647)]
Words = Annotated[list[Word], Field(min_length=1, max_length=100)]


class Worker(Shape):
    """A process that executes attempts."""

    id: str
    name: str
    hostname: str
    status: str
    queues: list[str]
    kinds: list[str]
    labels: dict[str, str]
    concurrency: int
    running: int = Field(description="Attempts that it executes now.")
    version: str
    is_drain_requested: bool
    started_at: datetime
    last_heartbeat: datetime
    lease_expires_at: datetime
    finished_at: datetime | None


class RegisterBody(Body):
    """What a worker says of itself."""

    worker_id: Annotated[str, Field(max_length=200, description="A label; the id is given by the server.")] = ""
    hostname: Annotated[str, Field(max_length=255)] = ""
    queues: Words = Field(default_factory=lambda: ["default"])
    kinds: Words = Field(default_factory=lambda: ["shell"])
    labels: dict[Word, Annotated[str, Field(max_length=200)]] = Field(default_factory=dict, max_length=100)
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 1
    version: Annotated[str, Field(max_length=200)] = ""


class Registered(Shape):
    """Who the worker is from now on; the incarnation is its token."""

    id: str
    worker_id: str
    incarnation: str
    status: str
    heartbeat_interval_seconds: float
    lease_seconds: float


class AttemptKey(Shape):
    """Names one attempt."""

    task_run_id: TaskRunId
    attempt: AttemptNumber


class HeartbeatBody(Body):
    """A worker is alive, and this is what it executes."""

    worker_id: Word
    incarnation: Annotated[str | None, Field(max_length=200, description="Instead of the token in a header.")] = None
    running: list[AttemptKey] = Field(default_factory=list, max_length=100_000)
    wait: Annotated[float, Field(ge=0, le=60, description="Seconds to wait for orders.")] = 0
    orders_seen: Annotated[str, Field(max_length=100, description="From the last answer.")] = ""


class Orders(Shape):
    """What a worker must know."""

    cancel: list[AttemptKey]
    lost: list[AttemptKey]
    is_draining: bool
    has_orders: bool
    orders_seen: str


class Assignment(Shape):
    """One attempt to execute; `id` is the task run's, for the one-at-a-time report."""

    id: str
    name: str
    command: str | list[str] | None
    task_run_id: str
    attempt: int
    run_id: str
    workflow: str
    task: str
    kind: str
    spec: dict[str, Any]
    timeout_seconds: float | None
    lease_seconds: float
    idempotency_key: str
    logical_date: str
    map_index: int
    try_number: int
    traceparent: str
    secrets: list[str]


class EventResult(Shape):
    is_accepted: bool
    code: str
    detail: str


class EventsReply(Shape):
    results: list[EventResult]
    assignments: list[Assignment]


class LogQuestions(Questions):
    """What an older worker says beside a log that it sends as raw bytes."""

    worker_id: Annotated[Word | None, Field(description="With a raw body.")] = None
    attempt: Annotated[AttemptNumber | None, Field(description="With a raw body.")] = None
    status: Annotated[str | None, Field(max_length=20, description="With a raw body.")] = None
    exit_code: Annotated[ExitCode | None, Field(description="With a raw body.")] = None


class LogBody(Body):
    """The one-at-a-time report of an older worker."""

    worker_id: Word
    incarnation: Annotated[str | None, Field(max_length=200)] = None
    attempt: AttemptNumber | None = None
    logs: Annotated[str, Field(description="Added to the end of the log.")] = ""
    status: Annotated[str | None, Field(max_length=20)] = None
    exit_code: ExitCode | None = None
    error: str | None = None
    output: Any = None


class Reported(Shape):
    id: str
    task_run_id: str
    attempt: int
    status: str
    is_accepted: bool
    code: str
    detail: str
