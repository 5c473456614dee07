"""The table of states is product knowledge: it is written out here once more, in words."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rota.domain.states import (
    RUN_FACTS,
    RUN_FINAL,
    RUN_MOVES,
    RUN_OPEN,
    SYNONYMS,
    TASK_FACTS,
    TASK_FINAL,
    TASK_MOVES,
    TASK_OPEN,
    RunState,
    TaskState,
    WorkerState,
    can_move,
    can_run_move,
    name_state,
)

PROMISED_MOVES = """
pending: queued, success, failed, upstream_failed, skipped, cancelled
queued: running, success, skipped, failed, cancelled
running: success, failed, retrying, cancelled, skipped, queued
retrying: queued, running, success, failed, skipped, cancelled
failed: pending, retrying, queued, running, success, skipped
upstream_failed: pending, queued, success, skipped
success:
skipped:
cancelled:
"""
SCRIPT = Path(__file__).parents[2] / "scripts" / "generate_states.py"


def read_promise() -> dict[str, set[str]]:
    lines = (line.split(":") for line in PROMISED_MOVES.strip().splitlines())
    return {old: {word.strip() for word in new.split(",") if word.strip()} for old, new in lines}


@pytest.mark.parametrize("old", list(TaskState))
@pytest.mark.parametrize("new", list(TaskState))
def test_a_task_run_moves_as_promised_and_not_otherwise(old, new):
    assert can_move(old, new) == (new in read_promise()[old])


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"),
    [
        (RunState.PENDING, RunState.RUNNING, True),
        (RunState.PENDING, RunState.SUCCESS, False),
        (RunState.RUNNING, RunState.FAILED, True),
        (RunState.RUNNING, RunState.PENDING, False),
        (RunState.FAILED, RunState.RUNNING, True),
        (RunState.SUCCESS, RunState.RUNNING, False),
        (RunState.CANCELLED, RunState.RUNNING, False),
    ],
)
def test_a_workflow_run_moves(old, new, is_allowed):
    assert can_run_move(old, new) is is_allowed


def test_every_state_is_final_or_open_and_described():
    assert TASK_FINAL | TASK_OPEN == set(TaskState) == set(TASK_FACTS) == set(TASK_MOVES)
    assert RUN_FINAL | RUN_OPEN == set(RunState) == set(RUN_FACTS) == set(RUN_MOVES)
    assert not TASK_FINAL & TASK_OPEN
    assert not RUN_FINAL & RUN_OPEN
    assert {"success", "failed", "upstream_failed", "skipped", "cancelled"} == TASK_FINAL
    assert {"active", "draining", "inactive"} == set(WorkerState)


def test_from_every_open_state_the_end_can_be_reached_and_work_cancelled():
    for state in TASK_OPEN:
        assert TaskState.CANCELLED in TASK_MOVES[state]
        assert TASK_MOVES[state] & TASK_FINAL
    assert all(RunState.CANCELLED in RUN_MOVES[state] for state in RUN_OPEN)


def test_no_state_moves_to_itself_and_every_state_can_be_reached():
    for moves in (TASK_MOVES, RUN_MOVES):
        assert all(state not in targets for state, targets in moves.items())
        reached = set().union(*moves.values()) | {"pending"}
        assert reached == set(moves)


def test_one_state_has_one_colour_wherever_it_is_shown():
    shared = set(map(str, TASK_FACTS)) & set(map(str, RUN_FACTS))
    for state in shared:
        assert TASK_FACTS[TaskState(state)].colour == RUN_FACTS[RunState(state)].colour
    colours = [facts.colour for facts in TASK_FACTS.values()]
    assert len(set(colours)) == len(colours)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("in_progress", "running"),
        ("completed", "success"),
        ("Succeeded", "success"),
        ("canceled", "cancelled"),
        (" FAILED ", "failed"),
        ("no such", "no such"),
    ],
)
def test_older_words_are_understood(word, state):
    assert name_state(word) == state


def test_synonyms_lead_to_states_and_hide_none():
    assert set(SYNONYMS.values()) <= set(TaskState)
    assert not set(SYNONYMS) & set(TaskState)


def test_the_page_about_states_is_up_to_date():
    spec = importlib.util.spec_from_file_location("generate_states", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.fill_page(page) == page
    assert "pending --> queued" in page
