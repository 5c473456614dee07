from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.graph import (
    ancestors,
    build_graph,
    descendants,
    find_cycle,
    measure_depths,
    propagate,
    roots,
    run_outcome,
    topological_order,
    upstream_counts,
)
from rota.domain.rules import DECIDED_STATE, Decision, TriggerRule, count_outcomes, decide
from rota.domain.states import TASK_FINAL, RunState, TaskState

S = TaskState
R = TriggerRule
DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@st.composite
def any_dependencies(draw, *, is_acyclic=False):
    size = draw(st.integers(1, 8))
    names = [f"t{number}" for number in range(size)]
    depends_on = {}
    for number, name in enumerate(names):
        others = names[:number] if is_acyclic else [other for other in names if other != name]
        depends_on[name] = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
    order = draw(st.permutations(names))
    return {name: depends_on[name] for name in order}


def build(depends_on):
    return build_graph(depends_on, depends_on)


def close(depends_on, start):
    """Everything above `start`, found by plain repetition."""
    found = {start}
    for _ in depends_on:
        found |= {parent for name in found for parent in depends_on[name]}
    return found


def has_cycle(depends_on):
    return any(name in close(depends_on, parent) for name in depends_on for parent in depends_on[name])


@given(any_dependencies())
def test_a_cycle_is_found_whenever_there_is_one_and_it_is_real(depends_on):
    cycle = find_cycle(build(depends_on))
    assert (cycle is not None) == has_cycle(depends_on)
    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1 >= 2
        for upstream, downstream in itertools.pairwise(cycle):
            assert upstream in depends_on[downstream]


@given(any_dependencies(is_acyclic=True))
def test_the_order_puts_every_upstream_first(depends_on):
    order = topological_order(build(depends_on))
    assert sorted(order) == sorted(depends_on)
    for name, parents in depends_on.items():
        assert all(order.index(parent) < order.index(name) for parent in parents)


@given(any_dependencies(is_acyclic=True))
def test_reach_roots_counts_and_depths(depends_on):
    graph = build(depends_on)
    above = {name: close(depends_on, name) for name in depends_on}
    for name in depends_on:
        assert ancestors(graph, [name]) == above[name]
        assert descendants(graph, [name]) == {other for other in depends_on if name in above[other]}
    assert roots(graph) == [name for name in depends_on if not depends_on[name]]
    assert upstream_counts(graph) == {name: len(parents) for name, parents in depends_on.items()}
    depths = measure_depths(graph)
    for name, parents in depends_on.items():
        assert depths[name] == max((depths[parent] + 1 for parent in parents), default=0)


def test_a_cycle_below_a_healthy_part_is_named_in_the_direction_of_the_work():
    graph = build({"start": [], "x": ["start", "z"], "y": ["x"], "z": ["y"], "end": ["z"]})
    assert find_cycle(graph) == ["x", "y", "z", "x"]


def test_ten_thousand_tasks_in_a_row_need_no_stack():
    names = [f"t{number}" for number in range(10_000)]
    chain = {name: names[max(number - 1, 0) : number] for number, name in enumerate(names)}
    graph = build(chain)
    assert topological_order(graph) == names
    assert measure_depths(graph)[names[-1]] == 9_999
    assert len(descendants(graph, [names[0]])) == 10_000
    states = dict.fromkeys(names, S.PENDING) | {names[0]: S.FAILED}
    decided = propagate(graph, dict.fromkeys(names, R.ALL_SUCCESS), states)
    assert len(decided) == 9_999
    assert set(decided.values()) == {S.UPSTREAM_FAILED}
    chain[names[0]] = [names[-1]]
    assert len(find_cycle(build(chain)) or []) == 10_001


@st.composite
def situations(draw):
    depends_on = draw(any_dependencies(is_acyclic=True))
    rules = {name: draw(st.sampled_from(TriggerRule)) for name in depends_on}
    states = {name: draw(st.sampled_from([S.PENDING, *TaskState])) for name in depends_on}
    return depends_on, rules, states


def propagate_slowly(depends_on, rules, states):
    """The definition taken literally: look at every pending task again and again, all at once."""
    current = dict(states)
    while True:
        decisions = {
            name: decide(rules[name], count_outcomes(current[parent] for parent in depends_on[name]))
            for name in depends_on
            if current[name] is S.PENDING
        }
        changed = {
            name: DECIDED_STATE[decision] for name, decision in decisions.items() if decision is not Decision.WAIT
        }
        if not changed:
            return {name: state for name, state in current.items() if state is not states[name]}
        current |= changed


@given(situations())
def test_propagation_is_the_rules_applied_until_nothing_changes(situation):
    depends_on, rules, states = situation
    assert propagate(build(depends_on), rules, states) == propagate_slowly(depends_on, rules, states)


@given(situations())
def test_a_run_goes_on_until_it_is_over_and_nothing_is_stranded(situation):
    """Whatever is queued ends somehow; in the end no task is left pending and the run has an outcome."""
    depends_on, rules, states = situation
    graph = build(depends_on)
    current = {name: state if state in TASK_FINAL else S.PENDING for name, state in states.items()}
    for _ in depends_on:
        current |= propagate(graph, rules, current)
        current = {name: S.SUCCESS if state is S.QUEUED else state for name, state in current.items()}
    assert set(current.values()) <= TASK_FINAL
    assert run_outcome(graph, rules, current) in (RunState.SUCCESS, RunState.FAILED)


def test_a_diamond_with_a_failure_and_a_clean_up():
    graph = build(DIAMOND)
    rules = {"a": R.ALL_SUCCESS, "b": R.ALL_SUCCESS, "c": R.ALL_SUCCESS, "d": R.ALL_DONE}
    states = {"a": S.FAILED, "b": S.PENDING, "c": S.PENDING, "d": S.PENDING}
    assert propagate(graph, rules, states) == {
        "b": S.UPSTREAM_FAILED,
        "c": S.UPSTREAM_FAILED,
        "d": S.QUEUED,
    }


@pytest.mark.parametrize(
    ("states", "rules", "outcome"),
    [
        ("success success success success", {}, RunState.SUCCESS),
        ("success success skipped skipped", {}, RunState.SUCCESS),
        ("success running success pending", {}, RunState.RUNNING),
        ("failed retrying success pending", {}, RunState.RUNNING),
        ("success failed success upstream_failed", {}, RunState.FAILED),
        ("success cancelled success upstream_failed", {}, RunState.FAILED),
        # Clean-up hides no failure; a task that is there for the failure handles it, if it succeeds.
        ("success failed success success", {"d": R.ALL_DONE}, RunState.FAILED),
        ("success failed success success", {"d": R.ONE_FAILED}, RunState.SUCCESS),
        ("success failed success success", {"d": R.ONE_SUCCESS}, RunState.SUCCESS),
        ("success failed failed success", {"d": R.ALL_FAILED}, RunState.SUCCESS),
        ("success cancelled success success", {"d": R.ONE_FAILED}, RunState.SUCCESS),
        ("success failed success failed", {"d": R.ONE_FAILED}, RunState.FAILED),
        ("success failed success skipped", {"d": R.ALL_FAILED}, RunState.FAILED),
        # Only direct downstreams handle: d is not right below a.
        ("failed upstream_failed upstream_failed success", {"d": R.ONE_FAILED}, RunState.FAILED),
        ("failed success success success", {"b": R.ONE_FAILED, "c": R.ALL_DONE}, RunState.SUCCESS),
    ],
)
def test_the_outcome_of_a_diamond(states, rules, outcome):
    by_name = dict(zip(DIAMOND, map(TaskState, states.split()), strict=True))
    assert run_outcome(build(DIAMOND), dict.fromkeys(DIAMOND, R.ALL_SUCCESS) | rules, by_name) is outcome


def test_a_failed_teardown_fails_no_run():
    graph = build({"work": [], "clean": ["work"]})
    rules = {"work": R.ALL_SUCCESS, "clean": R.ALL_DONE}
    states = {"work": S.SUCCESS, "clean": S.FAILED}
    assert run_outcome(graph, rules, states, teardown={"clean"}) is RunState.SUCCESS
    assert run_outcome(graph, rules, states) is RunState.FAILED
