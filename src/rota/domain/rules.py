"""Trigger rules: what becomes of a task, decided from counters of its upstreams' outcomes.

A rule is an ordered list of clauses, each a set of tests "this counter is zero / is not zero" and a decision;
the first clause whose tests all hold decides, and when none does the task waits. The same table is read by
`decide` here and turned into SQL by the store, so there is one meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rota.domain.states import TaskState

Counter = Literal["waiting", "succeeded", "failed", "skipped"]


class TriggerRule(StrEnum):
    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ALL_FAILED = "all_failed"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"
    NONE_FAILED = "none_failed"
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    ALWAYS = "always"


class Decision(StrEnum):
    WAIT = "wait"
    RUN = "run"
    SKIP = "skip"
    FAIL = "fail"


DECIDED_STATE: Mapping[Decision, TaskState] = {
    Decision.WAIT: TaskState.PENDING,
    Decision.RUN: TaskState.QUEUED,
    Decision.SKIP: TaskState.SKIPPED,
    Decision.FAIL: TaskState.UPSTREAM_FAILED,
}


@dataclass(frozen=True, slots=True)
class Clause:
    """`decision`, if every counter in `some` is above zero and every one in `none` is zero."""

    decision: Decision
    some: tuple[Counter, ...] = ()
    none: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True)
class Counters:
    """How many upstreams are not final yet, and how the others ended. Cancelled and upstream_failed count as failed."""

    waiting: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0


_R = TriggerRule
_D = Decision
RULES: Mapping[TriggerRule, tuple[Clause, ...]] = {
    _R.ALL_SUCCESS: (
        Clause(_D.FAIL, some=("failed",)),
        # Not before all have ended: a failure among the rest weighs more, whichever comes first.
        Clause(_D.SKIP, some=("skipped",), none=("waiting",)),
        Clause(_D.RUN, none=("waiting",)),
    ),
    _R.ALL_DONE: (Clause(_D.RUN, none=("waiting",)),),
    _R.ALL_FAILED: (
        Clause(_D.SKIP, some=("succeeded",)),
        Clause(_D.SKIP, some=("skipped",)),
        Clause(_D.RUN, none=("waiting",)),
    ),
    _R.ONE_SUCCESS: (
        Clause(_D.RUN, some=("succeeded",)),
        Clause(_D.FAIL, some=("failed",), none=("waiting",)),
        Clause(_D.SKIP, some=("skipped",), none=("waiting",)),
        Clause(_D.RUN, none=("waiting",)),
    ),
    _R.ONE_FAILED: (
        Clause(_D.RUN, some=("failed",)),
        Clause(_D.SKIP, some=("succeeded",), none=("waiting",)),
        Clause(_D.SKIP, some=("skipped",), none=("waiting",)),
        Clause(_D.RUN, none=("waiting",)),
    ),
    _R.NONE_FAILED: (
        Clause(_D.FAIL, some=("failed",)),
        Clause(_D.RUN, none=("waiting",)),
    ),
    _R.NONE_FAILED_MIN_ONE_SUCCESS: (
        Clause(_D.FAIL, some=("failed",)),
        Clause(_D.RUN, some=("succeeded",), none=("waiting",)),
        Clause(_D.SKIP, some=("skipped",), none=("waiting",)),
        Clause(_D.RUN, none=("waiting",)),
    ),
    _R.ALWAYS: (Clause(_D.RUN),),
}

# A downstream task with one of these rules is there for the failure of its upstreams: when it succeeds, the
# failure has been handled and does not fail the run. Clean-up rules (`all_done`, `always`) do not hide a failure.
HANDLES_FAILURE = frozenset({_R.ONE_SUCCESS, _R.ONE_FAILED, _R.ALL_FAILED})


def decide(rule: TriggerRule, counters: Counters) -> Decision:
    """What a pending task with these upstream outcomes does now. Tasks without upstreams run."""
    for clause in RULES[rule]:
        if all(getattr(counters, name) > 0 for name in clause.some) and all(
            getattr(counters, name) == 0 for name in clause.none
        ):
            return clause.decision
    return Decision.WAIT


def count_outcomes(states: Iterable[TaskState]) -> Counters:
    """The counters that a task with upstreams in these states must have."""
    waiting = succeeded = failed = skipped = 0
    for state in states:
        counter = OUTCOME_COUNTER.get(state, "waiting")
        waiting += counter == "waiting"
        succeeded += counter == "succeeded"
        failed += counter == "failed"
        skipped += counter == "skipped"
    return Counters(waiting, succeeded, failed, skipped)


OUTCOME_COUNTER: Mapping[TaskState, Counter] = {
    TaskState.SUCCESS: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.UPSTREAM_FAILED: "failed",
    TaskState.CANCELLED: "failed",
    TaskState.SKIPPED: "skipped",
}
