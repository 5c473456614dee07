"""Reading a job: one action, now or once or again and again, said in one flat object.

A job is a workflow with one task, so it is translated into a workflow's definition and read as one; faults
are told in the words of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rota.domain.errors import InvalidInput
from rota.domain.schedule import SCHEDULE_FIELDS
from rota.domain.spec import ACTION_FIELDS, JOB_TASK, WorkflowSpec
from rota.domain.spec_parse import parse_workflow
from rota.domain.spec_read import Faults, Reader, show
from rota.domain.spec_task import TASK_FIELDS

JOB_ACTIONS = ("command", "webhook_url", "python", "image")
WEBHOOK_FIELDS = ("method", "headers", "payload", "body", "secret", "expect", "follow_redirects")
# What has no meaning for a task that stands alone.
_NOT_FOR_JOBS = frozenset(
    {
        *("name", "depends_on", "trigger_rule", "branch", "teardown", "map_over", "map_limit"),
        *("map_concurrency", "params", "wait_for_result", *ACTION_FIELDS),
    }
)
_TASK_FIELDS = TASK_FIELDS - _NOT_FOR_JOBS
_WORKFLOW_FIELDS = frozenset(
    {
        *("name", "namespace", "description", "tags", "params", "is_active", "max_active_runs"),
        *("run_timeout_seconds", "pause_after_failures", "alerts"),
        *SCHEDULE_FIELDS,
    }
)
JOB_FIELDS = _TASK_FIELDS | _WORKFLOW_FIELDS | {*JOB_ACTIONS, *WEBHOOK_FIELDS, "args", "type", "max_retries"}
# The older system's words for the two types of job, and ours.
ONCE_TYPES = ("unico", "once")
RECURRING_TYPES = ("recurrente", "recurring")
_TIME_WORDS = ("run_at", "timestamp")
_RULE_WORDS = ("schedule_cron", "cron", "cron_expression", "schedule", "interval_seconds", "interval")
# Where the translation puts a field, and what the job calls it. The first that fits counts.
_PLACES = (
    ("tasks[0].http.url", "webhook_url"),
    ("tasks[0].http.", ""),
    ("tasks[0].container.", ""),
    ("tasks[0].", ""),
)


def parse_job(data: object, *, now: datetime | None) -> WorkflowSpec:
    """The job that this parsed JSON defines: `kind` job, one task. Raises InvalidInput with every fault.

    Without a name it has the empty one; without a time it has no schedule and is to run now.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput(f"a job is an object, not {show(data)}")
    faults = Faults()
    Reader(data, "", faults).refuse_unknown(JOB_FIELDS)
    # Older clients send empty strings for what they do not want.
    given = {name: value for name, value in data.items() if value is not None and value != ""}
    job = Reader(given, "", faults)
    _check_action(job)
    _check_type(job)
    definition = {name: value for name, value in given.items() if name in _WORKFLOW_FIELDS}
    definition |= {"kind": "job", "tasks": [_translate_task(job)]}
    try:
        spec = parse_workflow(definition, now=now)
    except InvalidInput as error:
        for fault in error.errors:
            faults.add(_name_field(fault.field, given), fault.reason)
        faults.raise_if_any()
        raise
    faults.raise_if_any()
    return spec


def _check_action(job: Reader) -> None:
    actions = [name for name in JOB_ACTIONS if job.has(name)]
    if actions == ["command", "image"]:
        # The command is what the container runs.
        actions = ["image"]
    if not actions:
        job.report(JOB_ACTIONS[0], f"a job needs one of {', '.join(JOB_ACTIONS)}")
        return
    for extra in actions[1:]:
        job.report(extra, f"a job does one thing: send either {actions[0]} or {extra}")
    for name in WEBHOOK_FIELDS:
        if job.has(name) and not job.has("webhook_url"):
            job.report(name, "needs webhook_url")


def _check_type(job: Reader) -> None:
    if not job.has("type"):
        return
    kind = job.data["type"]
    rules = [name for name in _RULE_WORDS if job.has(name)]
    if kind in ONCE_TYPES:
        for name in rules:
            job.report(name, f"a job of type {kind} runs once: send timestamp instead, or type recurrente")
    elif kind in RECURRING_TYPES:
        for name in _TIME_WORDS:
            if job.has(name):
                job.report(name, f"a job of type {kind} has no single time: send cron_expression instead")
        if not rules:
            job.report("type", f"a job of type {kind} needs cron_expression")
    else:
        job.report("type", f"expected unico (once) or recurrente (recurring), not {show(kind)}")


def _translate_task(job: Reader) -> dict[str, Any]:
    task = {name: value for name, value in job.data.items() if name in _TASK_FIELDS}
    task["name"] = JOB_TASK
    if job.has("max_retries"):
        if job.has("retry_count"):
            job.report("max_retries", "send either max_retries or retry_count")
        task["retry_count"] = job.data["max_retries"]
    if job.has("args"):
        task["args"] = job.data["args"]
    return task | _translate_action(job)


def _translate_action(job: Reader) -> dict[str, Any]:
    if job.has("image"):
        return {"container": _pick(job, ("image", "command"))}
    if job.has("webhook_url"):
        request = {"method": "POST", **_pick(job, WEBHOOK_FIELDS), "url": job.data["webhook_url"]}
        return {"http": request}
    # When there is no action at all, that has been reported; the rest is still to be read.
    return _pick(job, ("python",)) or {"command": job.data.get("command", "true")}


def _pick(job: Reader, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: job.data[name] for name in names if job.has(name)}


def _name_field(path: str, given: Mapping[str, Any]) -> str:
    """The job's own word for a place in the translated definition."""
    if path == "tasks[0].retry_count" and "max_retries" in given:
        return "max_retries"
    for place, name in _PLACES:
        if path.startswith(place):
            return name + path.removeprefix(place)
    return path
