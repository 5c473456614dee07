"""Jobs and their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from rota.api.schemas.base import Shape
from rota.api.schemas.runs import Attempt


class JobRun(Shape):
    """One execution of a job."""

    id: str
    job_id: str
    task_run_id: str
    status: str
    trigger: str
    logical_date: datetime
    created_at: datetime
    attempt: int
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    error_type: str | None
    error: str | None


class JobExecution(JobRun):
    worker: str | None
    attempts: list[Attempt]


class Job(Shape):
    """One action, now, once, or on a schedule."""

    id: str
    job_id: str
    namespace: str
    name: str
    status: str = Field(description="pending, running, success, failed or cancelled: that of the last run.")
    type: str = Field(description="unico (once) or recurrente (recurring).")
    is_active: bool
    command: str | list[str] | None
    webhook_url: str | None
    payload: Any
    schedule: str | None
    cron_expression: str | None
    timestamp: str | None
    last_date: str | None
    timezone: str | None
    max_retries: int
    timeout_seconds: float | None
    tags: list[str]
    next_run_at: datetime | None
    created_at: datetime
    updated_at: datetime
    definition: dict[str, Any]
    last_run: JobRun | None


class CreatedJob(Shape):
    id: str
    job_id: str
    name: str
    status: str
    run_id: str | None = Field(description="The run that has been started, if it is to run now.")


class CreatedJobs(Shape):
    """The jobs that were created, in the order in which they were sent."""

    items: list[CreatedJob]
    total: int


class JobStatus(Shape):
    id: str
    job_id: str
    status: str
    attempt_count: int
    run_id: str | None
    worker_id: str | None
    exit_code: int | None
    error_type: str | None
    error: str | None
    started_at: datetime | None
    finished_at: datetime | None
    next_run_at: datetime | None
