"""What a definition may not say: every fault by its path, all of them at once."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import InvalidInput
from rota.domain.spec_parse import MAX_DEFINITION_BYTES, parse_workflow

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ID = "0190a6e0-7b5c-7def-8123-456789abcdef"


def find_faults(data):
    """The faults of a definition by path; none if it is accepted."""
    try:
        parse_workflow(data, now=NOW)
    except InvalidInput as error:
        return {fault.field: fault.reason for fault in error.errors} or {"no fields": error.detail}
    return {}


def find_task_faults(**fields):
    """The faults of a workflow's second task; the first is called `first`."""
    tasks = [{"name": "first", "command": "true"}, {"name": "t", "command": "true", **fields}]
    return find_faults({"name": "w", "tasks": tasks})


def workflow_with(**fields):
    return {"name": "w", "tasks": [{"name": "t", "command": "true"}], **fields}


def test_all_faults_come_at_once_each_with_its_path():
    faults = find_faults(
        {
            "name": "",
            "schedule_cron": "61 * * * *",
            "maxactive_runs": 2,
            "tasks": [
                {"name": "a b", "command": "x"},
                {"name": "b", "comand": "x"},
                {"name": "c", "command": "x", "retry_count": -1, "env": {"1A": "x", "B": 2}},
                "d",
            ],
        }
    )
    assert set(faults) == {
        *("name", "schedule_cron", "maxactive_runs", "tasks[0].name", "tasks[1].comand", "tasks[1]"),
        *("tasks[2].retry_count", "tasks[2].env.1A", "tasks[2].env.B", "tasks[3]"),
    }
    assert 'did you mean "max_active_runs"?' in faults["maxactive_runs"]
    assert 'did you mean "command"?' in faults["tasks[1].comand"]


@pytest.mark.parametrize("data", [None, [], "text", 3, True])
def test_a_definition_is_an_object(data):
    with pytest.raises(InvalidInput):
        parse_workflow(data, now=NOW)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("name", {"name": ID}),
        ("name", {"name": "a/b"}),
        ("name", {"name": "a?b"}),
        ("name", {"name": "a%2Fb"}),
        ("name", {"name": ".."}),
        ("name", {"name": " a"}),
        ("name", {"name": "a\nb"}),
        ("name", {"name": "a\u202eb"}),
        ("name", {"name": "e\u0301"}),
        ("name", {"name": "x" * 201}),
        ("name", {"name": 7}),
        ("name", {"name": None}),
        ("namespace", {"namespace": "Team A"}),
        ("tags[1]", {"tags": ["ok", "a,b"]}),
        ("tags", {"tags": "etl"}),
        ("is_active", {"is_active": "yes"}),
        ("is_active", {"is_active": 1}),
        ("max_active_runs", {"max_active_runs": -1}),
        ("max_active_runs", {"max_active_runs": True}),
        ("max_active_tasks", {"max_active_tasks": 1.5}),
        ("run_timeout_seconds", {"run_timeout_seconds": 31_536_001}),
        ("description", {"description": "x" * 20_001}),
        ("tasks", {"tasks": []}),
        ("tasks", {"tasks": None}),
        ("tasks", {"tasks": {"t": {}}}),
        ("tasks", {"tasks": [{"name": "t", "command": "x"}] * 10_001}),
        ("kind", {"kind": "cron"}),
        ("on[0].workflow", {"on": [{"status": "success"}]}),
        ("on[0].status", {"on": [{"workflow": "x", "status": "sucess"}]}),
        ("on[0]", {"on": ["x"]}),
        ("alerts.to", {"alerts": {"on": ["failed"]}}),
        ("alerts.on[0]", {"alerts": {"on": ["fails"], "to": ["https://a.example"]}}),
        ("alerts.to[0]", {"alerts": {"to": ["ftp://a.example"]}}),
        ("alerts.to[0]", {"alerts": {"to": ["mailto:nobody"]}}),
        ("params.1a", {"params": {"1a": 3}}),
        ("timezone", {"schedule_cron": "@daily", "timezone": "Riga"}),
        ("schedule_cron", {"timezone": "Europe/Riga"}),
        ("schedules[1].interval_seconds", {"schedules": [{"cron": "@daily"}, {"interval_seconds": -1}]}),
        ("schedule_cron", {"schedules": [{"cron": "@daily"}], "schedule_cron": "@hourly"}),
        ("dependencies[0].task", {"dependencies": [{"task": "x", "depends_on": "t"}]}),
        ("dependencies[0].depends_on", {"dependencies": [{"task": "t", "depends_on": "x"}]}),
        ("dependencies[0].depends_on", {"dependencies": [{"task": "t"}]}),
        ("dependencies[0].task", {"dependencies": [{"depends_on": "t"}]}),
        ("tasks[0].depends_on[0]", {"dependencies": [{"task": "t", "depends_on": "t"}]}),
    ],
)
def test_a_faulty_workflow_field_is_named(path, fields):
    assert set(find_faults(workflow_with(**fields))) == {path}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("name", {"name": None}),
        ("name", {"name": "-x"}),
        ("name", {"name": "a\n"}),
        ("name", {"name": "ä"}),
        ("name", {"name": ID}),
        ("name", {"name": "first"}),
        ("", {"command": None}),
        ("command", {"command": "  "}),
        ("command", {"command": []}),
        ("command", {"command": ["", "x"]}),
        ("command[1]", {"command": ["x", 1]}),
        ("command", {"command": "x" * 131_072}),
        ("http", {"http": {"url": "http://a.example"}}),
        ("args", {"args": {"a": 1}}),
        ("isolation", {"isolation": "inline"}),
        ("wait_for_result", {"wait_for_result": True}),
        ("depends_on[0]", {"depends_on": ["frist"]}),
        ("depends_on[0]", {"depends_on": "t"}),
        ("depends_on[1]", {"depends_on": ["first", 3]}),
        ("depends_on", {"depends_on": ["first", "first"]}),
        ("trigger_rule", {"trigger_rule": "all_succes"}),
        ("trigger_rule", {"teardown": True, "trigger_rule": "always"}),
        ("branch", {"branch": True}),
        ("map_limit", {"map_over": "x", "map_limit": 100_001}),
        ("map_limit", {"map_limit": 5}),
        ("map_over", {"map_over": 5}),
        ("retry_count", {"retry_count": 1_001}),
        ("retry_count", {"retry_count": "3"}),
        ("retry_count", {"retry_count": 2.0}),
        ("retry_delay_seconds", {"retry_delay_seconds": -0.1}),
        ("retry_delay_seconds", {"retry_delay_seconds": math.inf}),
        ("retry_delay_seconds", {"retry_delay_seconds": math.nan}),
        ("retry_backoff", {"retry_backoff": "linear"}),
        ("retry_jitter", {"retry_jitter": 0.5}),
        ("retry_on[0]", {"retry_on": ["tiemout"]}),
        ("retry_on[0]", {"retry_on": [True]}),
        ("retry_on[0]", {"retry_on": [600]}),
        ("on_lost", {"on_lost": "ask"}),
        ("max_deliveries", {"max_deliveries": 0}),
        ("timeout_seconds", {"timeout_seconds": 10**400}),
        ("limits.memory", {"limits": {"memory": 5}}),
        ("limits.memory_mb", {"limits": {"memory_mb": 0}}),
        ("limits.open_files", {"limits": {"open_files": 1.5}}),
        ("limits", {"limits": [1]}),
        ("queue", {"queue": "a b"}),
        ("labels.gpu", {"labels": {"gpu": True}}),
        ("priority", {"priority": 101}),
        ("pool_slots", {"pool_slots": 2}),
        ("env.A=B", {"env": {"A=B": "x"}}),
        ("env.A", {"env": {"A": "x" * 100_001}}),
        ("working_directory", {"working_directory": "/a\nb"}),
        ("output", {"output": "xml"}),
    ],
)
def test_a_faulty_task_field_is_named(path, fields):
    wanted = f"tasks[1].{path}" if path else "tasks[1]"
    assert set(find_task_faults(**fields)) == {wanted}


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("http.url", {"http": {}}),
        ("http.url", {"http": {"url": "file:///etc/passwd"}}),
        ("http.url", {"http": {"url": "http://"}}),
        ("http.url", {"http": {"url": "http://a.example:99999/"}}),
        ("http.url", {"http": {"url": "http://a.example/ x"}}),
        ("http.method", {"http": {"url": "http://a.example", "method": "BREW"}}),
        ("http.method", {"http": {"url": "http://a.example", "method": "GET", "body": "x"}}),
        ("http.body", {"http": {"url": "http://a.example", "payload": 1, "body": "x"}}),
        ("http.headers.X-A", {"http": {"url": "http://a.example", "headers": {"X-A": "a\r\nX-B: b"}}}),
        ("http.headers.a b", {"http": {"url": "http://a.example", "headers": {"a b": "c"}}}),
        ("http.expect[1]", {"http": {"url": "http://a.example", "expect": [200, 99]}}),
        ("http.expect[0]", {"http": {"url": "http://a.example", "expect": ["6xx"]}}),
        ("http.timeout", {"http": {"url": "http://a.example", "timeout": 3}}),
        ("http", {"http": "http://a.example"}),
        ("python", {"python": "module.function"}),
        ("python", {"python": "os:system('x')"}),
        ("args", {"python": "m:f", "args": {"not a name": 1}}),
        ("container.image", {"container": {"command": "x"}}),
        ("container.pull", {"container": {"image": "a", "pull": "sometimes"}}),
        ("workflow", {"workflow": "a/b"}),
        ("wait", {"wait": {}}),
        ("wait", {"wait": {"seconds": 1, "until": "2030-01-01T00:00:00Z"}}),
        ("wait.seconds", {"wait": {"seconds": -1}}),
        ("wait.until", {"wait": {"until": "tomorrow"}}),
        ("wait.until", {"wait": {"until": "2030-01-01T00:00:00"}}),
        ("wait.run.workflow", {"wait": {"run": {}}}),
        ("approval.on_deadline", {"approval": {"on_deadline": "skip"}}),
        ("approval.approver", {"approval": {"approver": "me"}}),
    ],
)
def test_a_faulty_action_is_named(path, action):
    faults = find_faults({"name": "w", "tasks": [{"name": "t", **action}]})
    assert set(faults) - {"http.url"} in ({f"tasks[0].{path}"}, {f"tasks[0].{path}", "tasks[0].http.url"})


def test_a_task_that_does_two_things_is_told_which():
    faults = find_task_faults(python="m:f", wait={"seconds": 1})
    assert faults["tasks[1].python"] == "a task does one thing: give either command or python"
    assert set(faults) == {"tasks[1].python", "tasks[1].wait"}


def test_the_cycle_is_named():
    tasks = [
        {"name": "a", "command": "x", "depends_on": ["c"]},
        {"name": "b", "command": "x", "depends_on": ["a"]},
        {"name": "c", "command": "x", "depends_on": ["b"]},
    ]
    assert "a → b → c → a" in find_faults({"name": "w", "tasks": tasks})["tasks"]


def test_a_cycle_of_ten_thousand_is_named_in_short():
    tasks = [
        {"name": f"t{number}", "command": "x", "depends_on": [f"t{(number - 1) % 10_000}"]} for number in range(10_000)
    ]
    assert len(find_faults({"name": "w", "tasks": tasks})["tasks"]) < 300


def test_unknown_upstreams_are_guessed_but_not_blamed_on_a_broken_task():
    assert 'did you mean "first"?' in find_task_faults(depends_on=["frist"])["tasks[1].depends_on[0]"]
    broken = [{"name": "a"}, {"name": "b", "command": "x", "depends_on": ["a"]}]
    assert set(find_faults({"name": "w", "tasks": broken})) == {"tasks[0]"}


def test_teardown_comes_last_and_is_not_all():
    tasks = [
        {"name": "clean", "command": "x", "teardown": True},
        {"name": "work", "command": "x", "depends_on": ["clean"]},
    ]
    assert set(find_faults({"name": "w", "tasks": tasks})) == {"tasks[1].depends_on[0]"}
    assert set(find_faults({"name": "w", "tasks": tasks[:1]})) == {"tasks"}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("branch", {"teardown": True}),
        ("branch", {"map_over": [1]}),
        ("branch", {"command": None, "wait": {"seconds": 1}}),
        ("output", {"output": "none"}),
    ],
)
def test_what_cannot_be_a_branch(path, fields):
    tasks = [
        {"name": "b", "command": "x", "branch": True, **fields},
        {"name": "next", "command": "x", "depends_on": ["b"], "teardown": fields.get("teardown", False)},
        {"name": "other", "command": "x"},
    ]
    faults = set(find_faults({"name": "w", "tasks": tasks}))
    assert f"tasks[0].{path}" in faults
    assert len(faults) <= 2


def test_too_many_dependencies_are_refused():
    names = [f"t{number}" for number in range(700)]
    tasks = [{"name": name, "command": "x", "depends_on": names[:place]} for place, name in enumerate(names)]
    assert set(find_faults({"name": "w", "tasks": tasks})) == {"tasks"}


def test_a_definition_that_is_too_large_is_refused():
    tasks = [{"name": f"t{number}", "command": "x" * 100_000} for number in range(51)]
    assert f"{MAX_DEFINITION_BYTES:,}" in find_faults({"name": "w", "tasks": tasks})["definition"]


def nest(levels):
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_is_bounded_without_recursion():
    assert not find_faults(workflow_with(tasks=[{"name": "t", "python": "m:f", "args": {"a": nest(50)}}]))
    faults = find_faults(workflow_with(tasks=[{"name": "t", "python": "m:f", "args": {"a": nest(100_000)}}]))
    assert len(faults) == 1
    assert "nested deeper" in next(iter(faults.values()))


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800b", "\udfff"])
@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("description", lambda text: workflow_with(description=text)),
        ("tasks[0].command", lambda text: workflow_with(tasks=[{"name": "t", "command": text}])),
        (
            "tasks[0].http.payload.a[1]",
            lambda text: workflow_with(
                tasks=[{"name": "t", "http": {"url": "http://a.example", "payload": {"a": [1, text]}}}]
            ),
        ),
        ("tasks[0].env.A", lambda text: workflow_with(tasks=[{"name": "t", "command": "x", "env": {"A": text}}])),
        ("params.day.default", lambda text: workflow_with(params={"day": {"default": text}})),
    ],
)
def test_text_that_cannot_be_stored_is_refused_wherever_it_is(bad, path, place):
    assert path in find_faults(place(bad))


def test_keys_that_cannot_be_stored_are_refused():
    payload = {"url": "http://a.example", "payload": {"a\0": 1}}
    assert "tasks[0].http.payload" in find_faults(workflow_with(tasks=[{"name": "t", "http": payload}]))
    assert "tasks[0].args" in find_faults(workflow_with(tasks=[{"name": "t", "python": "m:f", "args": {1: 2}}]))


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**63, pytest.param(10**5000, id="huge"), b"bytes", {1, 2}, datetime.now(UTC)]
)
def test_values_that_are_not_plain_json_are_refused(value):
    task = {"name": "t", "python": "m:f", "args": {"a": value}}
    assert "tasks[0].args.a" in find_faults(workflow_with(tasks=[task]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        *("name", "tags", "params", "tasks", "schedules", "dependencies", "alerts", "on", "schedule_cron"),
        *("max_active_runs", "is_active", "kind", "timezone", "calendar", "run_at", "namespace"),
    ]
)
TASK_FIELDS = st.sampled_from(
    [
        *("name", "command", "http", "python", "args", "container", "wait", "approval", "workflow"),
        *("depends_on", "map_over", "limits", "env", "labels", "retry_on", "trigger_rule", "branch"),
    ]
)


@given(st.dictionaries(FIELDS, JSON, max_size=4), st.dictionaries(TASK_FIELDS, JSON, max_size=4))
def test_no_input_breaks_the_reader(workflow, task):
    """Whatever is sent is either accepted or refused with fields: nothing else is ever raised."""
    faults = find_faults({"name": "w", "tasks": [{"name": "t", "command": "x", **task}], **workflow})
    assert "no fields" not in faults


def test_guessing_what_was_meant_has_a_budget():
    """Long names that are alike are the dearest to compare; a thousand unknown ones must not take minutes."""
    stem = "y" * 50
    tasks = [{"name": f"{stem}{n}", "command": "x", "depends_on": [f"{stem}q{n}"]} for n in range(1_000)]
    faults = find_faults({"name": "w", "tasks": tasks})
    hints = [path for path, reason in faults.items() if "did you mean" in reason]
    assert hints == [f"tasks[{n}].depends_on[0]" for n in range(5)]
