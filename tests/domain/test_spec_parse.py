"""What a definition means: every field in its place, defaults, and the older systems' forms."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from rota.domain.errors import InvalidInput
from rota.domain.retry import RetryPolicy
from rota.domain.rules import TriggerRule
from rota.domain.schedule import ScheduleSpec
from rota.domain.spec import RunTrigger, TaskSpec, WorkflowSpec
from rota.domain.spec_parse import parse_workflow

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def parse(data, **options):
    return parse_workflow(data, now=NOW, **options)


def parse_task(**fields):
    """The task of a workflow with this one task."""
    return parse({"name": "w", "tasks": [{"name": "t", **fields}]}).tasks[0]


def test_the_smallest_workflow_has_all_defaults():
    spec = parse({"name": "nightly", "tasks": [{"name": "a", "command": "true"}]})
    assert spec == WorkflowSpec(name="nightly", tasks=(TaskSpec(name="a", kind="shell", action={"command": "true"}),))
    assert (spec.max_active_runs, spec.namespace, spec.is_active) == (16, "default", True)


def test_every_field_of_a_workflow():
    spec = parse(
        {
            "name": "Täglicher Lauf",
            "namespace": "team-a",
            "description": "two\nlines",
            "tags": ["etl", "etl", "daily"],
            "params": {"day": {"type": "string", "default": "{{ ds }}"}, "size": 3},
            "tasks": [{"name": "a", "command": "true"}],
            "schedule_cron": "0 2 * * *",
            "timezone": "Europe/Riga",
            "is_active": False,
            "max_active_runs": 1,
            "max_active_tasks": 4,
            "run_timeout_seconds": 3600,
            "pause_after_failures": 3,
            "alerts": {"on": ["failed", "late"], "to": ["mailto:ops@example.org"], "late_seconds": 60},
            "on": [{"workflow": "upstream"}, {"workflow": "other", "status": "done"}],
        }
    )
    assert spec == WorkflowSpec(
        name="Täglicher Lauf",
        namespace="team-a",
        description="two\nlines",
        tags=("etl", "daily"),
        params={"day": {"type": "string", "default": "{{ ds }}"}, "size": {"default": 3}},
        tasks=(TaskSpec(name="a", kind="shell", action={"command": "true"}),),
        schedules=(ScheduleSpec(cron="0 2 * * *", timezone="Europe/Riga"),),
        is_active=False,
        max_active_runs=1,
        max_active_tasks=4,
        run_timeout_seconds=3600.0,
        pause_after_failures=3,
        alerts={"on": ["failed", "late"], "to": ["mailto:ops@example.org"], "late_seconds": 60.0},
        on=(RunTrigger("upstream"), RunTrigger("other", "done")),
    )


def test_every_field_of_a_task():
    task = parse_task(
        command=["python", "-c", ""],
        stdin="data",
        when="params.size > 1",
        map_over="tasks.list.output",
        map_limit=10,
        map_concurrency=2,
        retry_count=3,
        retry_delay_seconds=0.5,
        retry_backoff="fixed",
        retry_max_delay_seconds=60,
        retry_jitter=True,
        retry_on=[75, "5xx", "timeout"],
        on_lost="fail",
        max_deliveries=5,
        timeout_seconds=10,
        queue_timeout_seconds=20,
        limits={"cpu_seconds": 1.5, "memory_mb": 512, "output_mb": 10, "open_files": 64},
        queue="heavy",
        labels={"gpu": "yes"},
        priority=-100,
        pool="db",
        pool_slots=2,
        concurrency_key="{{ params.customer }}",
        env={"A": "1", "B": ""},
        working_directory="/tmp",
        output="json",
    )
    assert task == TaskSpec(
        name="t",
        kind="shell",
        action={"command": ["python", "-c", ""], "stdin": "data"},
        when="params.size > 1",
        map_over="tasks.list.output",
        map_limit=10,
        map_concurrency=2,
        retry=RetryPolicy(3, 0.5, "fixed", 60.0, True, (75, "5xx", "timeout")),
        on_lost="fail",
        max_deliveries=5,
        timeout_seconds=10.0,
        queue_timeout_seconds=20.0,
        limits={"cpu_seconds": 1.5, "memory_mb": 512, "output_mb": 10, "open_files": 64},
        queue="heavy",
        labels={"gpu": "yes"},
        priority=-100,
        pool="db",
        pool_slots=2,
        concurrency_key="{{ params.customer }}",
        env={"A": "1", "B": ""},
        working_directory="/tmp",
        output="json",
    )


@pytest.mark.parametrize(
    ("fields", "kind", "action", "output"),
    [
        ({"command": "make"}, "shell", {"command": "make"}, "none"),
        (
            {"http": {"url": "https://a.example/x", "payload": {}}},
            "http",
            {"http": {"url": "https://a.example/x", "method": "POST", "payload": {}}},
            "json",
        ),
        (
            {"http": {"url": "http://[::1]:8080/", "method": "delete", "expect": [204, "4xx"]}},
            "http",
            {"http": {"url": "http://[::1]:8080/", "method": "DELETE", "expect": [204, "4xx"]}},
            "json",
        ),
        ({"http": {"url": "{{ params.u }}"}}, "http", {"http": {"url": "{{ params.u }}", "method": "GET"}}, "json"),
        (
            {"python": "pkg.mod:func", "args": {"day": "{{ ds }}"}},
            "python",
            {"python": "pkg.mod:func", "args": {"day": "{{ ds }}"}},
            "json",
        ),
        (
            {"container": {"image": "alpine:3", "command": ["ls"], "cpus": 0.5}},
            "container",
            {"container": {"image": "alpine:3", "command": ["ls"], "cpus": 0.5}},
            "none",
        ),
        (
            {"workflow": "child", "params": {"a": 1}, "wait_for_result": False},
            "workflow",
            {"workflow": "child", "params": {"a": 1}, "wait_for_result": False},
            "json",
        ),
        ({"wait": {"seconds": 5}}, "wait", {"wait": {"seconds": 5.0}}, "none"),
        ({"wait": {"until": "{{ ds }}T12:00:00Z"}}, "wait", {"wait": {"until": "{{ ds }}T12:00:00Z"}}, "none"),
        (
            {"wait": {"http": {"url": "http://a.example", "interval_seconds": 5}}},
            "wait",
            {"wait": {"http": {"url": "http://a.example", "interval_seconds": 5.0}}},
            "none",
        ),
        (
            {"wait": {"run": {"workflow": "other", "status": "done"}}},
            "wait",
            {"wait": {"run": {"workflow": "other", "status": "done"}}},
            "none",
        ),
        ({"approval": {}}, "approval", {"approval": {}}, "json"),
        (
            {"approval": {"message": "Go?", "deadline_seconds": 60, "on_deadline": "approve"}},
            "approval",
            {"approval": {"message": "Go?", "deadline_seconds": 60.0, "on_deadline": "approve"}},
            "json",
        ),
    ],
)
def test_every_kind_of_task(fields, kind, action, output):
    task = parse_task(**fields)
    assert (task.kind, task.action, task.output) == (kind, action, output)


def test_nothing_as_a_limit_is_said_by_zero_and_null_is_the_default():
    spec = parse(
        {
            "name": "w",
            "max_active_runs": 0,
            "run_timeout_seconds": 0,
            "description": None,
            "schedule_cron": None,
            "tasks": [{"name": "t", "command": "x", "timeout_seconds": 0, "retry_count": None, "pool": None}],
        }
    )
    assert (spec.max_active_runs, spec.run_timeout_seconds, spec.schedules) == (None, None, ())
    assert spec.tasks[0].timeout_seconds is None
    assert parse({"name": "w", "max_active_runs": None}, allow_empty=True).max_active_runs == 16


def test_a_teardown_waits_for_all_whatever_their_outcome():
    tasks = [{"name": "a", "command": "x"}, {"name": "z", "command": "y", "depends_on": "a", "teardown": True}]
    clean = parse({"name": "w", "tasks": tasks}).tasks[1]
    assert clean.is_teardown
    assert clean.trigger_rule is TriggerRule.ALL_DONE


def test_a_branch_has_an_output():
    tasks = [{"name": "a", "command": "x", "branch": True}, {"name": "b", "command": "y", "depends_on": ["a"]}]
    assert parse({"name": "w", "tasks": tasks}).tasks[0].output == "text"


def test_a_list_to_map_over_may_be_given_and_empty():
    assert parse_task(command="x", map_over=[1, {"a": [2]}]).map_over == (1, {"a": [2]})
    assert parse_task(command="x", map_over=[]).map_over == ()


def test_the_older_forms():
    bare = {"name": "daily-etl", "description": "", "schedule_cron": "0 2 * * *", "is_active": True}
    assert parse(bare, allow_empty=True).schedules == (ScheduleSpec(cron="0 2 * * *"),)
    assert parse(bare | {"schedule_cron": ""}, allow_empty=True).schedules == ()
    spec = parse(
        {
            "name": "w",
            "cron_expression": "@daily",
            "tasks": [{"name": name, "command": name} for name in "abc"],
            "dependencies": [
                {"task": "b", "depends_on": "a"},
                {"task": "c", "depends_on": ["a", "b"]},
                {"task": "c", "depends_on": "b"},
            ],
        }
    )
    assert [task.depends_on for task in spec.tasks] == [(), ("a",), ("a", "b")]
    assert spec.schedules == (ScheduleSpec(cron="@daily"),)


def test_a_workflow_may_have_several_schedules():
    schedules = [{"schedule_cron": "0 2 * * *"}, {"interval_seconds": 90, "pause_after_failures": 2}]
    spec = parse({"name": "w", "tasks": [{"name": "t", "command": "x"}], "schedules": schedules})
    assert spec.schedules == (
        ScheduleSpec(cron="0 2 * * *"),
        ScheduleSpec(interval_seconds=90, pause_after_failures=2),
    )


def make_chain():
    return [
        {"name": f"t{number}", "command": "true", "depends_on": [f"t{number - 1}"] if number else []}
        for number in range(10_000)
    ]


def make_layers():
    """100 layers of 100 tasks, 198,000 dependencies."""
    return [
        {
            "name": f"t{layer}_{place}",
            "command": "true",
            "depends_on": [f"t{layer - 1}_{(place + step) % 100}" for step in range(20)] if layer else [],
        }
        for layer in range(100)
        for place in range(100)
    ]


def make_fan():
    middle = [f"m{number}" for number in range(9_998)]
    return [
        {"name": "first", "command": "true"},
        *({"name": name, "command": "true", "depends_on": ["first"]} for name in middle),
        {"name": "last", "command": "true", "depends_on": middle},
    ]


@pytest.mark.parametrize("make", [make_chain, make_layers, make_fan])
def test_ten_thousand_tasks_are_read_in_about_a_second(make):
    tasks = make()
    begun = time.process_time()
    assert len(parse({"name": "w", "tasks": tasks}).tasks) == 10_000
    # Processor time on a slow or busy machine, hence the margin; it takes 0.5 s at the most on an idle one.
    assert time.process_time() - begun < 3


def test_ten_thousand_broken_tasks_are_refused_as_fast():
    tasks = [{"name": "same", "comand": "x", "depends_on": [f"no{number}"]} for number in range(10_000)]
    begun = time.process_time()
    with pytest.raises(InvalidInput) as caught:
        parse({"name": "w", "tasks": tasks})
    assert time.process_time() - begun < 5
    assert len(caught.value.errors) == 1_000
