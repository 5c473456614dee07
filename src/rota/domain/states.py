"""The states of everything, and the moves allowed between them.

This table is the only one: the database's CHECK constraints, the documentation's diagram, the filters'
synonyms and the user interface's colours are made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class TaskState(StrEnum):
    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCESS = "success"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WorkerState(StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"
    INACTIVE = "inactive"


class Holder(StrEnum):
    """What a running task run waits for when the engine looks after it and no worker does."""

    ITEMS = "items"
    RUN = "run"
    WAIT = "wait"
    POLL = "poll"
    APPROVAL = "approval"


class KeyState(StrEnum):
    """How a task run stands to its concurrency key."""

    # Nobody has looked yet whether the key is free.
    NEW = "new"
    # Somebody holds it, and passes it on.
    WAITING = "waiting"
    HELD = "held"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class StateFacts:
    """What a state means to a reader: is the work over, in which colour is it shown, and why is it so."""

    is_final: bool
    colour: str
    meaning: str


TASK_FACTS: Mapping[TaskState, StateFacts] = {
    TaskState.PENDING: StateFacts(False, "#94a3b8", "an upstream task is not done"),
    TaskState.QUEUED: StateFacts(False, "#a78bfa", "ready, waiting for a worker"),
    TaskState.RUNNING: StateFacts(False, "#3b82f6", "a worker is at it"),
    TaskState.RETRYING: StateFacts(False, "#f59e0b", "waiting for the next try"),
    TaskState.SUCCESS: StateFacts(True, "#22c55e", "done"),
    TaskState.FAILED: StateFacts(True, "#ef4444", "failed for good"),
    TaskState.UPSTREAM_FAILED: StateFacts(True, "#fb923c", "not tried, because an upstream task failed"),
    TaskState.SKIPPED: StateFacts(True, "#e879f9", "not needed"),
    TaskState.CANCELLED: StateFacts(True, "#64748b", "stopped by request"),
}

RUN_FACTS: Mapping[RunState, StateFacts] = {
    RunState.PENDING: StateFacts(False, "#94a3b8", "waiting for its turn"),
    RunState.RUNNING: StateFacts(False, "#3b82f6", "at least one task is not final"),
    RunState.SUCCESS: StateFacts(True, "#22c55e", "every failure, if any, was handled"),
    RunState.FAILED: StateFacts(True, "#ef4444", "a task failed and nothing handled it"),
    RunState.CANCELLED: StateFacts(True, "#64748b", "stopped by request"),
}

_T = TaskState
TASK_MOVES: Mapping[TaskState, frozenset[TaskState]] = {
    _T.PENDING: frozenset({_T.QUEUED, _T.SUCCESS, _T.FAILED, _T.UPSTREAM_FAILED, _T.SKIPPED, _T.CANCELLED}),
    _T.QUEUED: frozenset({_T.RUNNING, _T.SUCCESS, _T.SKIPPED, _T.FAILED, _T.CANCELLED}),
    _T.RUNNING: frozenset({_T.SUCCESS, _T.FAILED, _T.RETRYING, _T.CANCELLED, _T.SKIPPED, _T.QUEUED}),
    _T.RETRYING: frozenset({_T.QUEUED, _T.RUNNING, _T.SUCCESS, _T.FAILED, _T.SKIPPED, _T.CANCELLED}),
    _T.FAILED: frozenset({_T.PENDING, _T.RETRYING, _T.QUEUED, _T.RUNNING, _T.SUCCESS, _T.SKIPPED}),
    _T.UPSTREAM_FAILED: frozenset({_T.PENDING, _T.QUEUED, _T.SUCCESS, _T.SKIPPED}),
    _T.SUCCESS: frozenset(),
    _T.SKIPPED: frozenset(),
    _T.CANCELLED: frozenset(),
}

_R = RunState
RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    _R.PENDING: frozenset({_R.RUNNING, _R.CANCELLED, _R.FAILED}),
    _R.RUNNING: frozenset({_R.SUCCESS, _R.FAILED, _R.CANCELLED}),
    _R.FAILED: frozenset({_R.RUNNING}),
    _R.SUCCESS: frozenset(),
    _R.CANCELLED: frozenset(),
}

TASK_FINAL = frozenset(state for state, facts in TASK_FACTS.items() if facts.is_final)
TASK_OPEN = frozenset(TASK_FACTS) - TASK_FINAL
RUN_FINAL = frozenset(state for state, facts in RUN_FACTS.items() if facts.is_final)
RUN_OPEN = frozenset(RUN_FACTS) - RUN_FINAL

# The older systems' words, accepted wherever a status is asked for.
SYNONYMS: Mapping[str, str] = {
    "in_progress": "running",
    "in-progress": "running",
    "completed": "success",
    "succeeded": "success",
    "canceled": "cancelled",
}


def can_move(old: TaskState, new: TaskState) -> bool:
    """Whether a task run may go from `old` to `new`."""
    return new in TASK_MOVES[old]


def can_run_move(old: RunState, new: RunState) -> bool:
    """Whether a workflow run may go from `old` to `new`."""
    return new in RUN_MOVES[old]


def name_state(word: str) -> str:
    """The word Rota uses for a status that may be given as a synonym."""
    lowered = word.strip().lower()
    return SYNONYMS.get(lowered, lowered)
