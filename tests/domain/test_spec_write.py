"""What is written is read again as equal, whatever was defined."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.rules import TriggerRule
from rota.domain.spec import ACTION_FIELDS, WORKER_KINDS
from rota.domain.spec_parse import parse_workflow
from rota.domain.spec_task import task_from_dict, task_to_dict
from rota.domain.spec_write import content_hash, workflow_to_dict

NOW = datetime(2030, 1, 1, tzinfo=UTC)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
FULL_TEXT = TEXT.filter(lambda text: bool(text.strip()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
IDENTIFIERS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
KEYS = st.from_regex(r"[a-z0-9][a-z0-9_./-]{0,8}", fullmatch=True)
SECONDS = st.integers(0, 31_536_000) | st.floats(0, 31_536_000)
ARGS = st.dictionaries(IDENTIFIERS, JSON, max_size=2)
ACTIONS = st.one_of(
    st.builds(lambda text: {"command": text}, FULL_TEXT),
    st.builds(lambda first, rest: {"command": [first, *rest]}, FULL_TEXT, st.lists(TEXT, max_size=2)),
    st.builds(lambda text, stdin: {"command": text, "stdin": stdin}, FULL_TEXT, TEXT),
    st.builds(lambda args: {"python": "pkg.mod:func", "args": args}, ARGS),
    st.builds(lambda payload: {"http": {"url": "https://a.example", "payload": payload}}, JSON),
    st.builds(lambda number: {"http": {"url": "https://a.example", "expect": [number, "2xx"]}}, st.integers(100, 599)),
    st.builds(lambda text: {"container": {"image": "a", "command": text, "pull": "never"}}, FULL_TEXT),
    st.builds(lambda params: {"workflow": "child", "params": params}, ARGS),
    st.builds(lambda seconds: {"wait": {"seconds": seconds}}, SECONDS),
    st.builds(lambda seconds: {"approval": {"deadline_seconds": seconds}}, SECONDS),
)
HELD_ACTIONS = {field for field, kind in ACTION_FIELDS.items() if kind not in WORKER_KINDS}
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "trigger_rule": st.sampled_from([str(rule) for rule in TriggerRule]),
        "when": FULL_TEXT,
        "map_over": FULL_TEXT | st.lists(JSON, max_size=2),
        "retry_count": st.integers(0, 1000),
        "retry_delay_seconds": SECONDS,
        "retry_backoff": st.sampled_from(["exponential", "fixed"]),
        "retry_max_delay_seconds": SECONDS,
        "retry_jitter": st.booleans(),
        "retry_on": st.lists(st.integers(0, 599) | st.sampled_from(["5xx", "timeout"]), max_size=3),
        "on_lost": st.sampled_from(["retry", "fail"]),
        "max_deliveries": st.integers(1, 100),
        "timeout_seconds": SECONDS,
        "queue_timeout_seconds": SECONDS,
        "limits": st.fixed_dictionaries(
            {}, optional={"memory_mb": st.integers(1, 10**6), "cpu_seconds": st.floats(0.01, 1e6)}
        ),
        "queue": KEYS,
        "labels": st.dictionaries(KEYS, TEXT, max_size=2),
        "priority": st.integers(-100, 100),
        "pool": KEYS,
        "concurrency_key": st.just("{{ params.x }}"),
        "env": st.dictionaries(IDENTIFIERS, TEXT, max_size=2),
        "working_directory": st.just("/srv"),
        "output": st.sampled_from(["json", "text", "none"]),
    },
)
WORKFLOW_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "namespace": st.just("team-a"),
        "description": TEXT,
        "tags": st.lists(KEYS, max_size=3),
        "params": st.dictionaries(IDENTIFIERS, JSON.filter(lambda value: not isinstance(value, dict)), max_size=2),
        "schedule_cron": st.sampled_from(["0 2 * * *", "@hourly", ""]),
        "is_active": st.booleans(),
        "max_active_runs": st.integers(0, 20),
        "max_active_tasks": st.integers(0, 20),
        "run_timeout_seconds": SECONDS,
        "pause_after_failures": st.integers(0, 5),
        "alerts": st.just({"to": ["https://a.example"], "on": ["failed"], "late_seconds": 5}),
        "on": st.just([{"workflow": "other"}]),
    },
)


@st.composite
def definitions(draw):
    tasks: list[dict] = []
    for number in range(draw(st.integers(1, 5))):
        names = [task["name"] for task in tasks]
        upstream = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
        task = {"name": f"t{number}", **draw(ACTIONS), **draw(OPTIONS)}
        if task.keys() & HELD_ACTIONS:
            # A key is for what workers do.
            task.pop("concurrency_key", None)
        tasks.append(task | ({"depends_on": upstream} if upstream else {}))
    return {"name": "w", "tasks": tasks, **draw(WORKFLOW_OPTIONS)}


@given(definitions())
def test_a_workflow_is_read_again_as_it_was_written(data):
    spec = parse_workflow(data, now=NOW)
    written = json.loads(json.dumps(workflow_to_dict(spec)))
    again = parse_workflow(written, now=None)
    assert again == spec
    assert workflow_to_dict(again) == workflow_to_dict(spec)
    assert content_hash(again) == content_hash(spec)


@given(definitions())
def test_a_task_is_read_again_as_it_was_written(data):
    for task in parse_workflow(data, now=NOW).tasks:
        assert task_from_dict(json.loads(json.dumps(task_to_dict(task)))) == task


def test_only_what_differs_from_the_defaults_is_written():
    data = {"name": "w", "tasks": [{"name": "t", "command": "true"}]}
    loud = {
        **data,
        "namespace": "default",
        "max_active_runs": 16,
        "is_active": True,
        "tags": [],
        "tasks": [
            {
                "name": "t",
                "command": "true",
                "retry_count": 0,
                "trigger_rule": "all_success",
                "output": "none",
                "priority": 0,
                "env": {},
                "timeout_seconds": 0,
            }
        ],
    }
    assert workflow_to_dict(parse_workflow(loud, now=NOW)) == data


def test_seconds_are_written_without_a_needless_point():
    task = parse_workflow(
        {"name": "w", "tasks": [{"name": "t", "command": "x", "timeout_seconds": 300.0}]}, now=NOW
    ).tasks[0]
    assert json.dumps(task_to_dict(task)["timeout_seconds"]) == "300"


def test_branch_and_teardown_keep_their_own_defaults():
    tasks = [
        {"name": "pick", "command": "echo left", "branch": True},
        {"name": "left", "command": "true", "depends_on": ["pick"]},
        {"name": "clean", "command": "true", "depends_on": ["left"], "teardown": True},
    ]
    spec = parse_workflow({"name": "w", "tasks": tasks}, now=NOW)
    assert workflow_to_dict(spec)["tasks"] == tasks
    assert parse_workflow(workflow_to_dict(spec), now=None) == spec


@pytest.fixture
def spec():
    return parse_workflow({"name": "w", "tasks": [{"name": "a", "command": "x"}], "schedule_cron": "@daily"}, now=NOW)


def test_pausing_makes_no_new_version_but_any_other_change_does(spec):
    digest = content_hash(spec)
    assert len(digest) == 64
    assert content_hash(replace(spec, is_active=False)) == digest
    assert content_hash(replace(spec, description="new")) != digest
    assert content_hash(replace(spec, max_active_runs=None)) != digest
    assert content_hash(replace(spec, schedules=())) != digest
    assert content_hash(replace(spec, tasks=(replace(spec.tasks[0], priority=1),))) != digest


def test_the_hash_does_not_depend_on_the_order_of_fields(spec):
    turned = {"schedule_cron": "@daily", "tasks": [{"command": "x", "name": "a"}], "name": "w"}
    assert content_hash(parse_workflow(turned, now=NOW)) == content_hash(spec)
