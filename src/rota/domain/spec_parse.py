"""Reading a workflow's definition. Every fault is found in one go and named by its path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, get_args

from rota.domain.errors import InvalidInput
from rota.domain.schedule import SCHEDULE_FIELDS, ScheduleSpec, parse_schedule
from rota.domain.spec import (
    JOB_TASK,
    RunTrigger,
    TaskSpec,
    TriggerStatus,
    WorkflowKind,
    WorkflowSpec,
    choose_max_active_runs,
)
from rota.domain.spec_check import MAX_TASKS, check_tasks, check_waits
from rota.domain.spec_names import check_namespace, check_tag, check_url, check_workflow_name
from rota.domain.spec_params import read_params, require_defaults
from rota.domain.spec_read import Faults, Reader, scan_json, show
from rota.domain.spec_task import read_task

MAX_DEFINITION_BYTES = 5_000_000
MAX_SCHEDULES = 100
MAX_ACTIVE = 1_000_000
MAX_TAGS = 100
ALERT_EVENTS = ("missed", "late", "stuck", "failed", "long_running", "queue_age", "recovered")
ALERT_FIELDS = ("on", "to", "late_seconds", "long_running_seconds", "queue_age_seconds")
# Where an alert goes: how its address begins, and what it is.
ALERT_SCHEMES = ("https", "http", "mailto", "slack+https")
# The fields of one schedule that a workflow may carry itself when it has no more than one.
OWN_SCHEDULE_FIELDS = SCHEDULE_FIELDS - {"pause_after_failures"}
WORKFLOW_FIELDS = OWN_SCHEDULE_FIELDS | {
    *("name", "namespace", "description", "tags", "params", "tasks", "dependencies", "schedules"),
    *("is_active", "max_active_runs", "max_active_tasks", "run_timeout_seconds"),
    *("pause_after_failures", "alerts", "on", "kind"),
}


def parse_workflow(data: object, *, now: datetime | None, allow_empty: bool = False) -> WorkflowSpec:
    """The workflow that this parsed JSON defines. Raises InvalidInput with every fault.

    `now` None reads a definition that was accepted before. `allow_empty` accepts a workflow without tasks.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput(f"a definition is an object, not {show(data)}")
    faults = Faults()
    scan_json(data, faults)
    _check_size(data, faults)
    workflow = Reader(data, "", faults)
    workflow.refuse_unknown(WORKFLOW_FIELDS)
    kind: WorkflowKind = workflow.choice("kind", "workflow", ("workflow", "job"))
    spec = WorkflowSpec(
        name=_read_name(workflow, kind),
        namespace=workflow.text("namespace", check=check_namespace) or "default",
        description=workflow.text("description", longest=20_000, is_empty_allowed=True) or "",
        tags=tuple(dict.fromkeys(workflow.texts("tags", most=MAX_TAGS, longest=200, check=check_tag))),
        params=read_params(workflow),
        tasks=_read_tasks(workflow, kind, allow_empty=allow_empty),
        schedules=_read_schedules(workflow, now),
        is_active=workflow.boolean("is_active", default=True),
        max_active_runs=workflow.limit("max_active_runs", choose_max_active_runs(kind), most=MAX_ACTIVE),
        max_active_tasks=workflow.limit("max_active_tasks", None, most=MAX_ACTIVE),
        run_timeout_seconds=workflow.duration("run_timeout_seconds"),
        pause_after_failures=workflow.limit("pause_after_failures", None, most=MAX_ACTIVE),
        alerts=_read_alerts(workflow.child("alerts")),
        on=_read_triggers(workflow),
        kind=kind,
    )
    if spec.schedules or kind == "job":
        require_defaults(spec.params, faults)
    faults.raise_if_any()
    return spec


def _check_size(data: Mapping[str, Any], faults: Faults) -> None:
    if faults.has_any_below(""):
        # What the scan has refused may not be writable at all.
        return
    size = len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_DEFINITION_BYTES:
        faults.add("definition", f"at most {MAX_DEFINITION_BYTES:,} bytes of JSON are allowed, not {size:,}")
        faults.raise_if_any()


def _read_name(workflow: Reader, kind: WorkflowKind) -> str:
    is_job = kind == "job"
    if not workflow.has("name") and not is_job:
        workflow.report("name", "is required")
    check = None if is_job and workflow.data.get("name") == "" else check_workflow_name
    return workflow.text("name", check=check, longest=1_000, is_empty_allowed=is_job) or ""


def _read_tasks(workflow: Reader, kind: WorkflowKind, *, allow_empty: bool) -> tuple[TaskSpec, ...]:
    items = workflow.items("tasks", most=MAX_TASKS)
    if not items and not allow_empty:
        workflow.report("tasks", "at least one task is required")
    if kind == "job" and len(items) > 1:
        workflow.report("tasks", f"a job has one task, not {len(items):,}")
    tasks: dict[int, TaskSpec] = {}
    for index, item in enumerate(items):
        path = f"tasks[{index}]"
        if not isinstance(item, Mapping):
            workflow.report(path, f"expected an object, not {show(item)}")
            continue
        if kind == "job":
            item = {"name": JOB_TASK, **item}
        task = read_task(Reader(item, path, workflow.faults))
        if task is not None:
            tasks[index] = task
    _add_dependencies(workflow, tasks)
    # A task that could not be read is reported once; the others must not be told that it does not exist.
    if len(tasks) == len(items):
        check_tasks(tasks, workflow.faults)
        check_waits(str(workflow.data.get("name")), tasks, workflow.faults)
    return tuple(tasks.values())


def _add_dependencies(workflow: Reader, tasks: dict[int, TaskSpec]) -> None:
    """The older form: a list of {task, depends_on} beside the tasks."""
    indexes = {task.name: index for index, task in tasks.items()}
    added: dict[int, list[str]] = {}
    for entry in workflow.children("dependencies", most=MAX_TASKS * 20):
        entry.refuse_unknown(("task", "depends_on"))
        is_one = isinstance(entry.data.get("depends_on"), str)
        wanted = (entry.text("depends_on"),) if is_one else entry.texts("depends_on", most=MAX_TASKS)
        if not wanted:
            entry.report("depends_on", "is required: the name of the task to wait for, or a list of names")
        name = entry.text("task")
        if name is None:
            entry.report("task", "is required: the name of the task that waits")
        known = [upstream for upstream in (name, *wanted) if _is_known(entry, upstream, indexes)]
        if name is not None and len(known) == 1 + len(wanted):
            added.setdefault(indexes[name], []).extend(known[1:])
    for index, names in added.items():
        merged = tuple(dict.fromkeys((*tasks[index].depends_on, *names)))
        tasks[index] = replace(tasks[index], depends_on=merged)


def _is_known(entry: Reader, name: str | None, indexes: Mapping[str, int]) -> bool:
    if name is not None and name not in indexes:
        hint = entry.faults.suggest(name, indexes)
        field = "task" if name == entry.data.get("task") else "depends_on"
        entry.report(field, f"there is no task {show(name)}{hint}")
    return name in indexes


def _read_schedules(workflow: Reader, now: datetime | None) -> tuple[ScheduleSpec, ...]:
    # An older client sends an empty cron expression for a workflow that is started by hand.
    own = {
        name: value
        for name, value in workflow.data.items()
        if name in OWN_SCHEDULE_FIELDS and value is not None and value != ""
    }
    if workflow.has("schedules"):
        for name in own:
            workflow.report(name, "belongs into one of the schedules when there is a list of them")
        found = [
            _read_schedule(workflow, entry.data, entry.path, now)
            for entry in workflow.children("schedules", most=MAX_SCHEDULES)
        ]
        return tuple(schedule for schedule in found if schedule is not None)
    schedule = _read_schedule(workflow, own, "", now) if own else None
    return () if schedule is None else (schedule,)


def _read_schedule(workflow: Reader, data: Mapping[str, Any], path: str, now: datetime | None) -> ScheduleSpec | None:
    try:
        return parse_schedule(data, path=path, now=now)
    except InvalidInput as error:
        workflow.faults.take(error, path=path or "schedule_cron")
        return None


def _read_triggers(workflow: Reader) -> tuple[RunTrigger, ...]:
    found = []
    for trigger in workflow.children("on", most=100):
        trigger.refuse_unknown(("workflow", "status"))
        if not trigger.has("workflow"):
            trigger.report("workflow", "is required")
        name = trigger.text("workflow", check=check_workflow_name)
        status: TriggerStatus = trigger.choice("status", "success", get_args(TriggerStatus))
        if name is not None:
            found.append(RunTrigger(name, status))
    return tuple(found)


def _read_alerts(alerts: Reader) -> dict[str, Any]:
    alerts.refuse_unknown(ALERT_FIELDS)
    if not alerts.data:
        return {}
    for index, event in enumerate(alerts.items("on", most=len(ALERT_EVENTS))):
        if event not in ALERT_EVENTS:
            hint = alerts.faults.suggest(event, ALERT_EVENTS)
            reason = f"expected one of {', '.join(ALERT_EVENTS)}, not {show(event)}{hint}"
            alerts.report(f"on[{index}]", reason)
    if not alerts.has("to"):
        alerts.report("to", "is required: a list of addresses, such as mailto:ops@example.org")
    found: dict[str, Any] = {"to": list(alerts.texts("to", most=20, longest=8_192, check=_check_target))}
    if alerts.has("on"):
        found["on"] = list(alerts.items("on", most=len(ALERT_EVENTS)))
    for name in ("late_seconds", "long_running_seconds", "queue_age_seconds"):
        seconds = alerts.duration(name)
        if seconds is not None:
            found[name] = seconds
    return found


def _check_target(target: str) -> str | None:
    scheme, _, rest = target.partition(":")
    if scheme == "mailto":
        return None if "@" in rest.strip("@") and rest.isprintable() else "expected mailto:name@host"
    if scheme not in ALERT_SCHEMES:
        return f"expected an address that begins with {', '.join(ALERT_SCHEMES)}, not {show(target)}"
    return check_url(target.removeprefix("slack+"))
