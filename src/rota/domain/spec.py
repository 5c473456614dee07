"""What a workflow is: the definition after it has been read and found valid.

The same words as in the definition's JSON (docs/reference/definition.md), except that flags are `is_…` here.
Made by `rota.domain.spec_parse` and `rota.domain.job`, written back by `rota.domain.spec_write`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rota.domain.retry import RetryPolicy
from rota.domain.rules import TriggerRule
from rota.domain.schedule import ScheduleSpec

TaskKind = Literal["shell", "http", "python", "container", "wait", "approval", "workflow"]
WorkflowKind = Literal["workflow", "job"]
OutputKind = Literal["json", "text", "none"]
OnLost = Literal["retry", "fail"]
Isolation = Literal["process", "inline"]
TriggerStatus = Literal["success", "failed", "cancelled", "done"]

# The field of a definition that makes a task be of a kind. Exactly one of them is given.
ACTION_FIELDS: Mapping[str, TaskKind] = {
    "command": "shell",
    "http": "http",
    "python": "python",
    "container": "container",
    "workflow": "workflow",
    "wait": "wait",
    "approval": "approval",
}
# Kinds that a worker executes; the engine itself looks after the others.
WORKER_KINDS: frozenset[TaskKind] = frozenset({"shell", "http", "python", "container"})

DEFAULT_OUTPUT: Mapping[TaskKind, OutputKind] = {
    "shell": "none",
    "container": "none",
    "wait": "none",
    "http": "json",
    "python": "json",
    "workflow": "json",
    "approval": "json",
}
# The name of a job's only task.
JOB_TASK = "job"
DEFAULT_MAX_ACTIVE_RUNS = 16


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task. `action` is the part that belongs to the kind, in the words of the definition."""

    name: str
    kind: TaskKind
    action: Mapping[str, Any]
    depends_on: tuple[str, ...] = ()
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    when: str | None = None
    is_branch: bool = False
    is_teardown: bool = False
    map_over: str | tuple[Any, ...] | None = None
    map_limit: int = 1000
    map_concurrency: int | None = None
    retry: RetryPolicy = RetryPolicy()
    on_lost: OnLost = "retry"
    max_deliveries: int = 3
    timeout_seconds: float | None = None
    queue_timeout_seconds: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    isolation: Isolation = "process"
    queue: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    pool: str | None = None
    pool_slots: int = 1
    concurrency_key: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    output: OutputKind = "none"

    @property
    def is_gated(self) -> bool:
        """Whether the engine looks at the task, when it is ready, before a worker may have it."""
        conditions = (self.when, self.map_over, self.concurrency_key, self.queue_timeout_seconds)
        return self.kind not in WORKER_KINDS or any(condition is not None for condition in conditions)


@dataclass(frozen=True, slots=True)
class RunTrigger:
    """A run of `workflow` that ends with `status` starts a run of this one. `done` means however it ends."""

    workflow: str
    status: TriggerStatus = "success"


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """One version of a workflow, or a job (`kind`), which is a workflow with one task."""

    name: str
    namespace: str = "default"
    description: str = ""
    tags: tuple[str, ...] = ()
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tasks: tuple[TaskSpec, ...] = ()
    schedules: tuple[ScheduleSpec, ...] = ()
    is_active: bool = True
    max_active_runs: int | None = DEFAULT_MAX_ACTIVE_RUNS
    max_active_tasks: int | None = None
    run_timeout_seconds: float | None = None
    pause_after_failures: int | None = None
    alerts: Mapping[str, Any] = field(default_factory=dict)
    on: tuple[RunTrigger, ...] = ()
    kind: WorkflowKind = "workflow"

    @property
    def is_watched(self) -> bool:
        """Whether something is to be done when its runs end: alerts, or a pause after failures."""
        return bool(self.alerts) or self.pause_after_failures is not None


def choose_output(kind: TaskKind, *, is_branch: bool) -> OutputKind:
    """What a task's output is when its definition does not say. A branch must name who goes on."""
    output = DEFAULT_OUTPUT[kind]
    return "text" if is_branch and output == "none" else output


def choose_trigger_rule(*, is_teardown: bool) -> TriggerRule:
    """The rule of a task whose definition does not say: clean-up waits for all and minds no outcome."""
    return TriggerRule.ALL_DONE if is_teardown else TriggerRule.ALL_SUCCESS


def choose_max_active_runs(kind: WorkflowKind) -> int | None:
    """How many runs may be active at once when the definition does not say."""
    return DEFAULT_MAX_ACTIVE_RUNS if kind == "workflow" else None
