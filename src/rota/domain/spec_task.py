"""Reading and writing one task of a definition."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from rota.domain.retry import RetryPolicy
from rota.domain.rules import TriggerRule
from rota.domain.spec import ACTION_FIELDS, WORKER_KINDS, TaskKind, TaskSpec, choose_output, choose_trigger_rule
from rota.domain.spec_action import KIND_FIELDS, read_action
from rota.domain.spec_names import (
    check_identifier,
    check_key,
    check_printable,
    check_status_class,
    check_task_name,
)
from rota.domain.spec_read import MAX_INTEGER, ONE_YEAR_SECONDS, Faults, Reader, show
from rota.domain.work import ErrorType

MAX_MAP_LIMIT = 100_000
MAX_RETRIES = 1_000
MAX_DELIVERIES = 100
MAX_PRIORITY = 100
MAX_POOL_SLOTS = 10_000
MAX_CONCURRENCY = 1_000_000
MAX_UPSTREAMS = 10_000
LONGEST_EXPRESSION = 10_000
LONGEST_ENV_VALUE = 100_000

_TEXT_FIELDS = ("when", "pool", "concurrency_key", "working_directory")
TASK_FIELDS = frozenset(
    {
        *("name", "depends_on", "trigger_rule", "branch", "teardown", "map_over", "map_limit"),
        *("map_concurrency", "retry_count", "retry_delay_seconds", "retry_backoff"),
        *("retry_max_delay_seconds", "retry_jitter", "retry_on", "on_lost", "max_deliveries"),
        *("timeout_seconds", "queue_timeout_seconds", "limits", "queue", "labels", "priority"),
        *("pool_slots", "env", "output"),
        *_TEXT_FIELDS,
        *ACTION_FIELDS,
        *KIND_FIELDS,
    }
)
# The most that each limit may be.
LIMITS: Mapping[str, float] = {
    "cpu_seconds": ONE_YEAR_SECONDS,
    "memory_mb": 16_777_216,
    "output_mb": 1_024,
    "open_files": 1_048_576,
}
_WHOLE_LIMITS = ("memory_mb", "open_files")
_RETRY_WORDS = frozenset(str(error) for error in ErrorType)


def read_task(task: Reader) -> TaskSpec | None:
    """The task in this object; None when it has no usable name or action (which has then been reported)."""
    task.refuse_unknown(TASK_FIELDS)
    name = task.text("name", check=check_task_name)
    if not task.has("name"):
        task.report("name", "is required")
    action = read_action(task)
    is_branch = task.boolean("branch", default=False)
    is_teardown = task.boolean("teardown", default=False)
    kind = action[0] if action else "shell"
    fields: dict[str, Any] = {
        "trigger_rule": _read_rule(task, is_teardown=is_teardown),
        "output": task.choice("output", choose_output(kind, is_branch=is_branch), ("json", "text", "none")),
        "retry": read_retry(task),
    }
    fields |= _read_order(task) | _read_bounds(task) | _read_place(task)
    _check_branch(task, fields, kind, is_branch=is_branch)
    if action and kind not in WORKER_KINDS and task.has("concurrency_key"):
        task.report("concurrency_key", f"a {kind} task runs without a worker: give the key to tasks that do the work")
    if name is None or action is None:
        return None
    return TaskSpec(name=name, kind=kind, action=action[1], is_branch=is_branch, is_teardown=is_teardown, **fields)


def read_retry(task: Reader) -> RetryPolicy:
    default = RetryPolicy()
    return RetryPolicy(
        retry_count=task.integer("retry_count", default.retry_count, least=0, most=MAX_RETRIES),
        retry_delay_seconds=task.number(
            "retry_delay_seconds", default.retry_delay_seconds, least=0.0, most=ONE_YEAR_SECONDS
        ),
        retry_backoff=task.choice("retry_backoff", default.retry_backoff, ("exponential", "fixed")),
        retry_max_delay_seconds=task.number(
            "retry_max_delay_seconds", default.retry_max_delay_seconds, least=0.0, most=ONE_YEAR_SECONDS
        ),
        retry_jitter=task.boolean("retry_jitter", default=default.retry_jitter),
        retry_on=_read_retry_on(task),
    )


def _read_retry_on(task: Reader) -> tuple[int | str, ...]:
    found: list[int | str] = []
    for index, value in enumerate(task.items("retry_on", most=100)):
        is_word = isinstance(value, str) and (value in _RETRY_WORDS or check_status_class(value) is None)
        if is_word or (type(value) is int and 0 <= value <= 599):
            found.append(value)
        else:
            wanted = "an exit code, an HTTP status (503), a class of statuses (5xx) or an error type"
            hint = task.faults.suggest(value, _RETRY_WORDS)
            task.report(f"retry_on[{index}]", f"expected {wanted}, not {show(value)}{hint}")
    return tuple(found)


def _read_rule(task: Reader, *, is_teardown: bool) -> TriggerRule:
    default = choose_trigger_rule(is_teardown=is_teardown)
    rule = task.choice("trigger_rule", default, tuple(TriggerRule))
    if is_teardown and rule != default:
        task.report("trigger_rule", f"a teardown task always runs last: leave it out, or send {default}")
    return rule


def _check_branch(task: Reader, fields: Mapping[str, Any], kind: TaskKind, *, is_branch: bool) -> None:
    if not is_branch:
        return
    if kind == "wait":
        task.report("branch", "a wait task has no output that could name who goes on")
    if kind == "workflow":
        task.report("branch", "the output of a sub-workflow is an object, which names nobody: let a task below choose")
    if task.boolean("teardown", default=False):
        task.report("branch", "a teardown task cannot be a branch")
    if fields["map_over"] is not None:
        task.report("branch", "a mapped task cannot be a branch: its items could disagree")
    if fields["output"] == "none":
        task.report("output", "a branch needs an output that names who goes on: send json or text")


def _read_order(task: Reader) -> dict[str, Any]:
    map_concurrency = task.limit("map_concurrency", None, most=MAX_CONCURRENCY)
    if not task.has("map_over"):
        for name in ("map_limit", "map_concurrency"):
            if task.has(name):
                task.report(name, "needs map_over")
    return {
        "depends_on": _read_upstreams(task),
        "when": task.text("when", longest=LONGEST_EXPRESSION),
        "map_over": _read_map_over(task),
        "map_limit": task.integer("map_limit", 1_000, least=1, most=MAX_MAP_LIMIT),
        "map_concurrency": map_concurrency,
    }


def _read_upstreams(task: Reader) -> tuple[str, ...]:
    """Names of upstream tasks; one name may stand without a list."""
    if isinstance(task.data.get("depends_on"), str):
        name = task.text("depends_on", check=check_task_name)
        return (name,) if name else ()
    # What a name may look like is checked by looking it up: only existing names survive.
    found = task.texts("depends_on", most=MAX_UPSTREAMS)
    if len(set(found)) < len(found):
        task.report("depends_on", f"{show(_find_repeat(found))} is listed twice")
    return tuple(dict.fromkeys(found))


def _find_repeat(names: tuple[str, ...]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _read_map_over(task: Reader) -> str | tuple[Any, ...] | None:
    value = task.data.get("map_over")
    if isinstance(value, str):
        return task.text("map_over", longest=LONGEST_EXPRESSION)
    if value is None:
        return None
    return tuple(task.items("map_over", most=MAX_MAP_LIMIT))


def _read_bounds(task: Reader) -> dict[str, Any]:
    return {
        "on_lost": task.choice("on_lost", "retry", ("retry", "fail")),
        "max_deliveries": task.integer("max_deliveries", 3, least=1, most=MAX_DELIVERIES),
        "timeout_seconds": task.duration("timeout_seconds"),
        "queue_timeout_seconds": task.duration("queue_timeout_seconds"),
        "limits": _read_limits(task.child("limits")),
        "isolation": task.choice("isolation", "process", ("process", "inline")),
    }


def _read_limits(limits: Reader) -> dict[str, float]:
    limits.refuse_unknown(LIMITS)
    found: dict[str, float] = {}
    for name, most in LIMITS.items():
        if name in _WHOLE_LIMITS and limits.has(name):
            found[name] = limits.integer(name, 1, least=1, most=int(most))
        elif limits.has(name):
            found[name] = limits.number(name, 1.0, least=0.01, most=most)
    return found


def _read_place(task: Reader) -> dict[str, Any]:
    if task.has("pool_slots") and not task.has("pool"):
        task.report("pool_slots", "needs pool")
    return {
        "queue": task.text("queue", check=check_key) or "default",
        "labels": task.text_map("labels", key_check=check_key, longest=200, most=100),
        "priority": task.integer("priority", 0, least=-MAX_PRIORITY, most=MAX_PRIORITY),
        "pool": task.text("pool", check=check_key),
        "pool_slots": task.integer("pool_slots", 1, least=1, most=MAX_POOL_SLOTS),
        "concurrency_key": task.text("concurrency_key", longest=200, check=check_printable),
        "env": task.text_map("env", key_check=check_identifier, longest=LONGEST_ENV_VALUE),
        "working_directory": task.text("working_directory", longest=4_096, check=check_printable),
    }


def task_from_dict(data: Mapping[str, Any]) -> TaskSpec:
    """The task written by `task_to_dict`. Raises InvalidInput."""
    faults = Faults()
    task = read_task(Reader(data, "", faults))
    faults.raise_if_any()
    if task is None:
        raise AssertionError("a task that cannot be read has a fault")
    return task


def task_to_dict(task: TaskSpec) -> dict[str, Any]:
    """The task in the words of the definition; what has its default is left out."""
    written: dict[str, Any] = {"name": task.name, **task.action}
    if task.depends_on:
        written["depends_on"] = list(task.depends_on)
    if task.trigger_rule != choose_trigger_rule(is_teardown=task.is_teardown):
        written["trigger_rule"] = str(task.trigger_rule)
    if task.is_branch:
        written["branch"] = True
    if task.is_teardown:
        written["teardown"] = True
    if task.map_over is not None:
        written["map_over"] = task.map_over if isinstance(task.map_over, str) else list(task.map_over)
    if task.output != choose_output(task.kind, is_branch=task.is_branch):
        written["output"] = task.output
    for owner, (names, read, usual) in ((task.retry, _RETRY), (task, _PLAIN)):
        values = read(owner)
        # Most tasks leave most fields alone.
        if values != usual:
            changed = zip(names, values, usual, strict=True)
            written |= {name: write_value(value) for name, value, default in changed if value != default}
    return written


_RETRY_FIELDS = tuple(RetryPolicy.__slots__)
_PLAIN_FIELDS = (
    *("when", "map_limit", "map_concurrency", "on_lost", "max_deliveries", "timeout_seconds"),
    *("queue_timeout_seconds", "limits", "isolation", "queue", "labels", "priority", "pool"),
    *("pool_slots", "concurrency_key", "env", "working_directory"),
)
_read_retry = attrgetter(*_RETRY_FIELDS)
_RETRY = (_RETRY_FIELDS, _read_retry, _read_retry(RetryPolicy()))
_read_plain = attrgetter(*_PLAIN_FIELDS)
_PLAIN = (_PLAIN_FIELDS, _read_plain, _read_plain(TaskSpec(name="", kind="shell", action={})))


def write_value(value: Any) -> Any:
    """A value as JSON has it: whole numbers without a point, tuples as lists."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER:
        return int(value)
    if isinstance(value, tuple | list):
        return [write_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: write_value(item) for key, item in value.items()}
    return value
