from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import InvalidInput
from rota.domain.job import JOB_FIELDS, parse_job
from rota.domain.retry import RetryPolicy
from rota.domain.schedule import ScheduleSpec
from rota.domain.spec import TaskSpec, WorkflowSpec
from rota.domain.spec_parse import parse_workflow
from rota.domain.spec_write import workflow_to_dict

NOW = datetime(2030, 1, 1, tzinfo=UTC)
URL = "https://example.com/webhook"


def find_faults(data):
    with pytest.raises(InvalidInput) as caught:
        parse_job(data, now=NOW)
    return {fault.field: fault.reason for fault in caught.value.errors}


def test_a_command_that_runs_now():
    assert parse_job({"name": "backup", "command": "make backup"}, now=NOW) == WorkflowSpec(
        name="backup",
        kind="job",
        max_active_runs=None,
        tasks=(TaskSpec(name="job", kind="shell", action={"command": "make backup"}),),
    )


def test_a_job_needs_no_name():
    assert parse_job({"command": "true"}, now=NOW).name == ""
    assert parse_job({"command": "true", "name": ""}, now=NOW).name == ""


@pytest.mark.parametrize(
    ("data", "kind", "action"),
    [
        (
            {"webhook_url": URL, "payload": {"message": "hi"}, "secret": "whsec_x"},
            "http",
            {"http": {"url": URL, "method": "POST", "payload": {"message": "hi"}, "secret": "whsec_x"}},
        ),
        ({"webhook_url": URL}, "http", {"http": {"url": URL, "method": "POST"}}),
        ({"webhook_url": URL, "method": "get"}, "http", {"http": {"url": URL, "method": "GET"}}),
        ({"python": "m:f", "args": {"a": 1}}, "python", {"python": "m:f", "args": {"a": 1}}),
        ({"image": "alpine"}, "container", {"container": {"image": "alpine"}}),
        (
            {"image": "alpine", "command": ["ls", "/"]},
            "container",
            {"container": {"image": "alpine", "command": ["ls", "/"]}},
        ),
        ({"command": ["ls", "-l"]}, "shell", {"command": ["ls", "-l"]}),
    ],
)
def test_every_action(data, kind, action):
    task = parse_job(data, now=NOW).tasks[0]
    assert (task.kind, task.action) == (kind, action)


@pytest.mark.parametrize(
    ("data", "schedule"),
    [
        ({}, None),
        ({"schedule": "", "timestamp": None}, None),
        ({"schedule": "0 2 * * *"}, ScheduleSpec(cron="0 2 * * *")),
        (
            {"type": "recurrente", "cron_expression": "0 9 * * 1-5", "last_date": "2031-12-31T23:59:59Z"},
            ScheduleSpec(cron="0 9 * * 1-5", end_at=datetime(2031, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ),
        (
            {"type": "unico", "timestamp": "2024-12-25T10:00:00Z"},
            ScheduleSpec(run_at=datetime(2024, 12, 25, 10, tzinfo=UTC)),
        ),
        ({"type": "once"}, None),
        ({"type": "recurring", "interval_seconds": 60}, ScheduleSpec(interval_seconds=60)),
        (
            {"cron_expression": "@daily", "timezone": "Europe/Riga", "misfire": "skip"},
            ScheduleSpec(cron="@daily", timezone="Europe/Riga", misfire="skip"),
        ),
    ],
)
def test_every_way_to_say_when(data, schedule):
    schedules = parse_job({"command": "true", **data}, now=NOW).schedules
    assert schedules == (() if schedule is None else (schedule,))


def test_what_a_task_and_a_workflow_may_say_a_job_may_say_too():
    spec = parse_job(
        {
            "command": "true",
            "max_retries": 3,
            "retry_delay_seconds": 5,
            "timeout_seconds": 60,
            "priority": 7,
            "queue": "slow",
            "env": {"A": "b"},
            "tags": ["x"],
            "namespace": "team",
            "max_active_runs": 1,
        },
        now=NOW,
    )
    task = spec.tasks[0]
    assert task.retry == RetryPolicy(retry_count=3, retry_delay_seconds=5)
    assert (task.timeout_seconds, task.priority, task.queue, task.env) == (60, 7, "slow", {"A": "b"})
    assert (spec.tags, spec.namespace, spec.max_active_runs) == (("x",), "team", 1)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("command", {}),
        ("command", {"type": "recurrente", "cron_expression": "@daily"}),
        ("webhook_url", {"command": "x", "webhook_url": URL}),
        ("image", {"webhook_url": URL, "image": "a"}),
        ("payload", {"command": "x", "payload": {}}),
        ("webhook_url", {"webhook_url": "ftp://example.com"}),
        ("headers.a b", {"webhook_url": URL, "headers": {"a b": "c"}}),
        ("payload.a[0]", {"webhook_url": URL, "payload": {"a": ["\0"]}}),
        ("python", {"python": "module"}),
        ("image", {"image": 3}),
        ("command[1]", {"image": "alpine", "command": ["x", 1]}),
        ("args", {"command": "x", "args": {"a": 1}}),
        ("max_retries", {"command": "x", "max_retries": -1}),
        ("max_retries", {"command": "x", "max_retries": 1, "retry_count": 1}),
        ("retry_count", {"command": "x", "retry_count": "1"}),
        ("timeout_seconds", {"command": "x", "timeout_seconds": "1m"}),
        ("priority", {"command": "x", "priority": 101}),
        ("name", {"command": "x", "name": "a/b"}),
        ("schedule", {"command": "x", "schedule": "0 0 31 2 *"}),
        ("timestamp", {"command": "x", "timestamp": "tomorrow"}),
        ("type", {"command": "x", "type": "daily"}),
        ("type", {"command": "x", "type": ["unico"]}),
        ("type", {"command": "x", "type": "recurrente"}),
        ("cron_expression", {"command": "x", "type": "unico", "cron_expression": "@daily"}),
        ("depends_on", {"command": "x", "depends_on": ["y"]}),
        ("tasks", {"command": "x", "tasks": []}),
        ("webhok_url", {"command": "x", "webhok_url": URL}),
    ],
)
def test_a_fault_is_told_in_the_words_of_the_job(path, data):
    assert set(find_faults(data)) == {path}


def test_neither_action_names_all_that_could_be_sent():
    reason = find_faults({})["command"]
    assert all(word in reason for word in ("command", "webhook_url", "python", "image"))


def test_a_recurring_job_has_no_single_time():
    data = {"command": "x", "type": "recurrente", "timestamp": "2031-01-01T00:00:00Z"}
    assert set(find_faults(data)) == {"type", "timestamp"}


def test_all_faults_come_at_once():
    data = {"max_retries": -1, "typ": "unico", "priority": "high", "schedule": "x"}
    assert set(find_faults(data)) == {"command", "max_retries", "typ", "priority", "schedule"}


@pytest.mark.parametrize("data", [None, [], "x", 1])
def test_a_job_is_an_object(data):
    with pytest.raises(InvalidInput):
        parse_job(data, now=NOW)


@pytest.mark.parametrize(
    "data",
    [
        {"command": "true"},
        {"name": "n", "webhook_url": URL, "payload": [], "cron_expression": "@daily", "max_retries": 2},
        {"image": "a", "command": "x", "timestamp": "2031-01-01T00:00:00Z", "max_active_runs": 16},
    ],
)
def test_a_job_is_written_and_read_again_as_a_workflow_of_its_kind(data):
    spec = parse_job(data, now=NOW)
    assert parse_workflow(workflow_to_dict(spec), now=None) == spec


def test_a_job_has_one_task():
    tasks = [{"command": "a"}, {"command": "b"}]
    with pytest.raises(InvalidInput, match="one task"):
        parse_workflow({"kind": "job", "tasks": tasks}, now=NOW)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20)


@given(
    st.dictionaries(
        st.sampled_from(sorted(JOB_FIELDS)) | st.text(max_size=5),
        SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), SCALARS, max_size=2),
        max_size=6,
    )
)
def test_no_input_breaks_the_reader(data):
    """Whatever is sent is either a job or refused with its fields: nothing else is ever raised."""
    try:
        spec = parse_job(data, now=NOW)
        read = len(spec.tasks) if spec.kind == "job" else 0
    except InvalidInput as error:
        read = len(error.errors)
    assert read > 0
