"""Workflow runs, task runs, attempts, logs and history."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field

from rota.api.schemas.base import Body, Questions, Shape

LongText = Annotated[str, Field(max_length=10_000)]
VersionWish = Annotated[
    Literal["same", "current"] | Annotated[int, Field(ge=1, le=2**31 - 1)],
    Field(description="The version of the workflow: that of the run, the current one, or a number."),
]
ManyNames = Annotated[list[Annotated[str, Field(max_length=200)]], Field(min_length=1, max_length=500)]


class TriggerBody(Body):
    """What a run is to be given."""

    params: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    logical_date: Annotated[datetime | None, Field(strict=False)] = None
    note: LongText = ""


class RunChange(Body):
    """What is to be changed. Labels that are not named stay; null removes one."""

    note: LongText | None = None
    labels: dict[str, str | None] = Field(default_factory=dict)


class CancelBody(Body):
    reason: LongText = ""


class RerunBody(Body):
    """What is to be executed again, in a new run: everything, unless a part is asked for."""

    tasks: ManyNames | None = Field(default=None, description="These and everything below them.")
    from_failed: bool = Field(default=False, description="What has not been done, and everything below that.")
    version: VersionWish = "same"
    note: LongText = ""


class RetryBody(RerunBody):
    """What to try again: all that failed, the named tasks and everything below them, or the whole run."""

    from_failed: bool = True
    whole: bool = False


class MarkBody(Body):
    """How a task run is declared to have ended."""

    status: Literal["success", "failed", "skipped"]
    reason: LongText = ""


class DeadLetterBody(Body):
    """Which failed task runs to try again."""

    ids: ManyNames


class LogQuestions(Questions):
    """Which part of which log is wanted, and how."""

    attempt: Annotated[int | None, Field(ge=0, le=2**31 - 1, description="The last one if not given.")] = None
    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=5_000_000, description="Bytes.")] = 1_000_000
    raw: Annotated[bool, Field(description="The bytes as they were written.")] = False
    follow: Annotated[bool, Field(description="As server-sent events, until the attempt is over.")] = False


class ListQuestions(Questions):
    """Which entries of a list are wanted."""

    status: list[str] = Field(
        default_factory=list, description="May be repeated; the older systems' words are accepted.", max_length=50
    )
    workflow: Annotated[str | None, Field(max_length=200, description="Its id or name.")] = None
    tag: Annotated[str | None, Field(max_length=200, description="A tag of the workflow.")] = None
    since: Annotated[AwareDatetime | None, Field(description="Only what was made then or later.")] = None
    until: Annotated[AwareDatetime | None, Field(description="Only what was made before.")] = None


class RunQuestions(ListQuestions):
    """Which runs are wanted."""

    q: Annotated[str | None, Field(max_length=200, description="A part of the workflow's name or of the note.")] = None
    label: list[Annotated[str, Field(max_length=300)]] = Field(
        default_factory=list, description="KEY:VALUE; may be repeated, and then all are asked for.", max_length=10
    )
    trigger: Annotated[str | None, Field(max_length=20, description="Such as `schedule` or `backfill`.")] = None
    parent_task_run_id: Annotated[str | None, Field(max_length=36, description="What started them.")] = None


class TaskRunQuestions(ListQuestions):
    """Which task runs are wanted."""

    q: Annotated[str | None, Field(max_length=200, description="A part of the task's name.")] = None
    run_id: Annotated[str | None, Field(max_length=100)] = None
    task: Annotated[str | None, Field(max_length=200, description="Its name.")] = None
    map_index: Annotated[
        int | None, Field(ge=-1, le=100_000, description="Which item of a mapped task; -1 for tasks as a whole.")
    ] = None


class HistoryQuestions(Questions):
    """Which changes are wanted."""

    entity_type: Literal["workflow_run", "task_run", "worker", "schedule", "backfill"] | None = None
    entity_id: Annotated[str | None, Field(max_length=100)] = None
    since_seq: Annotated[int, Field(ge=0, le=2**62, description="The last `seq` that is known already.")] = 0
    limit: Annotated[int, Field(ge=1, le=500)] = 20
    cursor: Annotated[str | None, Field(max_length=20, description="`next_cursor` of the page before.")] = None


class Run(Shape):
    """One execution of one version of a workflow."""

    id: str
    namespace: str
    workflow_id: str
    workflow: str
    workflow_version: int
    schedule_id: str | None
    backfill_id: str | None
    trigger: str
    status: str
    logical_date: datetime
    params: dict[str, Any]
    note: str
    labels: Annotated[dict[str, str], BeforeValidator(lambda value: value or {})]
    rerun_of: str | None = Field(description="The run that this one repeats, wholly or in part.")
    task_count: int
    remaining: int
    failed_count: int
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    parent_run_id: str | None = Field(description="The run that started it, by one of its tasks or by its end.")
    parent_task_run_id: str | None = Field(description="The task run that started it.")
    depth: int = Field(description="How many runs stand above it.")
    deadline_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class TaskRun(Shape):
    """One task inside one run, whatever the number of tries."""

    id: str
    run_id: str
    workflow_run_id: str
    workflow_id: str
    workflow: str
    task_id: str
    task: str
    kind: str
    map_index: int = Field(description="Which item of a mapped task; -1 for the task as a whole.")
    status: str
    trigger_rule: str
    attempt: int
    retry_count: int
    failure_count: int = Field(description="Tries that the task itself has spent.")
    lost_count: int = Field(description="Tries that were lost with their workers.")
    priority: int
    due_at: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    holder: str | None = Field(description="Set while it runs without a worker: what it waits for.")
    waiting_for: dict[str, Any] | None = Field(description="What exactly that is, or was.")
    cancel_requested_at: datetime | None
    exit_code: int | None
    error_type: str | None
    error: str | None
    created_at: datetime


class RunDetail(Run):
    task_runs: list[TaskRun] | None = Field(
        description="Of each mapped task the first 1,000 items. Null when `task_runs=false` was asked for."
    )


class Attempt(Shape):
    """One try on one worker."""

    attempt: int
    status: str
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None = None
    error_type: str | None = None
    error: str | None = None
    usage: dict[str, float] | None = None
    is_unconfirmed: bool = False


class TaskRunDetail(TaskRun):
    output: Any
    item: Any = Field(description="Of an item of a mapped task: its value.")
    attempts: list[Attempt] = Field(description="The running one is the last.")
    logs: str | None = Field(description="The last attempt's log as text; null when `logs=false` was asked for.")


class LogText(Shape):
    """A part of an attempt's log. Bytes that are no UTF-8 are replaced; `raw=true` gives them as they are."""

    task_run_id: str
    attempt: int
    offset: int
    next_offset: int = Field(description="Send it as `offset` to go on reading.")
    size: int = Field(description="Bytes written so far, those left out included.")
    is_complete: bool = Field(description="Whether the attempt is over and this reaches its end.")
    text: str


class Cancelled(Shape):
    """What cancelling has done: the rest is up to the workers that were asked."""

    id: str
    status: str
    stopped: int
    asked: int


class Retried(Shape):
    """The run that executes it again: the same one, or a new one."""

    id: str
    rerun_of: str | None = Field(default=None, description="The run that it repeats, if it is a new one.")
    status: str
    queued: int
    waiting: int


class Holder(Shape):
    id: str
    name: str
    since_at: datetime | None


class Explanation(Shape):
    """Why it is not running: a stable code, a sentence, who is in the way, and when it is looked at next."""

    status: str
    code: str
    sentence: str
    holders: list[Holder]
    next_check_at: datetime | None
    details: dict[str, Any]


class Change(Shape):
    """One change of state."""

    seq: int
    entity_type: str
    entity_id: str
    root_id: str
    old_state: str | None
    new_state: str
    changed_at: datetime
    metadata: dict[str, Any] | None


class DeadLetterResult(Shape):
    id: str
    is_accepted: bool
    code: str
    detail: str


class DeadLetterResults(Shape):
    retried: int
    items: list[DeadLetterResult]
