"""Trigger rules against the same rules told again in plain words, for every mix of up to four upstreams."""

from __future__ import annotations

import itertools

import pytest

from rota.domain.rules import (
    DECIDED_STATE,
    HANDLES_FAILURE,
    OUTCOME_COUNTER,
    RULES,
    Counters,
    Decision,
    TriggerRule,
    count_outcomes,
    decide,
)
from rota.domain.states import TASK_FINAL, TASK_OPEN, TaskState, can_move

OUTCOMES = ("waiting", "succeeded", "failed", "skipped")
MIXES = [mix for size in range(5) for mix in itertools.combinations_with_replacement(OUTCOMES, size)]


def tell_all_success(has, is_over):
    if has("failed"):
        return "fail"
    if not is_over:
        return "wait"
    return "skip" if has("skipped") else "run"


def tell_all_done(has, is_over):
    return "run" if is_over else "wait"


def tell_all_failed(has, is_over):
    if has("succeeded") or has("skipped"):
        return "skip"
    return "run" if is_over else "wait"


def tell_one_success(has, is_over):
    if has("succeeded"):
        return "run"
    if not is_over:
        return "wait"
    if has("failed"):
        return "fail"
    return "skip" if has("skipped") else "run"


def tell_one_failed(has, is_over):
    if has("failed"):
        return "run"
    if not is_over:
        return "wait"
    return "skip" if has("succeeded") or has("skipped") else "run"


def tell_none_failed(has, is_over):
    if has("failed"):
        return "fail"
    return "run" if is_over else "wait"


def tell_none_failed_min_one_success(has, is_over):
    if has("failed"):
        return "fail"
    if not is_over:
        return "wait"
    only_skipped = has("skipped") and not has("succeeded")
    return "skip" if only_skipped else "run"


def tell_always(has, is_over):
    return "run"


PLAIN_WORDS = {
    TriggerRule.ALL_SUCCESS: tell_all_success,
    TriggerRule.ALL_DONE: tell_all_done,
    TriggerRule.ALL_FAILED: tell_all_failed,
    TriggerRule.ONE_SUCCESS: tell_one_success,
    TriggerRule.ONE_FAILED: tell_one_failed,
    TriggerRule.NONE_FAILED: tell_none_failed,
    TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS: tell_none_failed_min_one_success,
    TriggerRule.ALWAYS: tell_always,
}


def count(mix):
    return Counters(*(mix.count(outcome) for outcome in OUTCOMES))


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_every_mix_of_outcomes_is_decided_as_told_in_words(rule):
    for mix in MIXES:
        told = PLAIN_WORDS[rule](lambda outcome, mix=mix: outcome in mix, "waiting" not in mix)
        assert decide(rule, count(mix)) == told, (rule, mix)


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_nothing_is_stranded_when_all_upstreams_are_over(rule):
    for mix in MIXES:
        if "waiting" not in mix:
            assert decide(rule, count(mix)) is not Decision.WAIT


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_a_task_without_upstreams_runs(rule):
    assert decide(rule, Counters()) is Decision.RUN


@pytest.mark.parametrize("rule", sorted(set(TriggerRule) - {TriggerRule.ALWAYS}))
def test_what_is_decided_early_is_what_would_be_decided_late(rule):
    """Whatever the order in which upstreams end, so two schedulers cannot come to different ends."""
    for mix in MIXES:
        early = decide(rule, count(mix))
        if early is Decision.WAIT or "waiting" not in mix:
            continue
        known = [outcome for outcome in mix if outcome != "waiting"]
        for rest in itertools.product(OUTCOMES[1:], repeat=mix.count("waiting")):
            assert decide(rule, count([*known, *rest])) is early, (rule, mix, rest)


def test_all_success_never_runs_after_a_failure_or_before_the_end():
    for mix in MIXES:
        if decide(TriggerRule.ALL_SUCCESS, count(mix)) is Decision.RUN:
            assert set(mix) <= {"succeeded"}


def test_outcomes_are_counted_by_state():
    states = [*TASK_FINAL, TaskState.RUNNING, TaskState.RETRYING]
    assert count_outcomes(states) == Counters(waiting=2, succeeded=1, failed=3, skipped=1)
    assert count_outcomes(TASK_OPEN) == Counters(waiting=len(TASK_OPEN))
    assert set(OUTCOME_COUNTER) == TASK_FINAL


def test_every_rule_has_clauses_and_every_decision_is_an_allowed_move():
    assert set(RULES) == set(TriggerRule)
    assert all(RULES[rule] for rule in TriggerRule)
    for decision, state in DECIDED_STATE.items():
        assert decision is Decision.WAIT or can_move(TaskState.PENDING, state)


def test_rules_that_handle_a_failure_can_run_after_one():
    for rule in HANDLES_FAILURE:
        assert any(decide(rule, count(mix)) is Decision.RUN for mix in MIXES if "failed" in mix)
