"""Making shapes of rows, where a row does not look like its shape already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.api.schemas.definitions import Task, Version, Workflow
from rota.api.schemas.jobs import Job, JobExecution, JobRun, JobStatus
from rota.api.schemas.runs import Attempt, Explanation, Run, TaskRun
from rota.api.schemas.schedules import ListedSchedule, Schedule
from rota.domain.spec_task import task_from_dict
from rota.engine import explain
from rota.store.schedules import ScheduleRow


def describe_workflow(row: Any) -> dict[str, Any]:
    """The fields of a workflow."""
    fields = {name: getattr(row, name) for name in Workflow.model_fields if name != "schedule_cron"}
    return fields | {"schedule_cron": (row.schedule or {}).get("schedule_cron", "")}


def make_workflow(row: Any) -> Workflow:
    return Workflow(**describe_workflow(row))


def make_schedule(row: ScheduleRow) -> Schedule:
    return Schedule(**_describe_schedule(row))


def make_listed_schedule(row: Any) -> ListedSchedule:
    """A schedule that was read with the name of its workflow."""
    return ListedSchedule(**_describe_schedule(row), workflow=row.workflow)


def _describe_schedule(row: Any) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in Schedule.model_fields if name not in ("definition", "next_run_at")}
    return fields | {"definition": row.spec, "next_run_at": row.next_due_at}


def make_version(row: Any) -> Version:
    return Version.model_validate(row)


def make_task(row: Any) -> Task:
    task = task_from_dict(row.spec)
    return Task(
        id=row.id,
        workflow_id=row.workflow_id,
        name=row.name,
        kind=row.kind,
        command=row.spec.get("command"),
        depends_on=list(task.depends_on),
        retry_count=row.retry_count,
        retry_delay_seconds=task.retry.retry_delay_seconds,
        timeout_seconds=row.timeout_seconds,
        priority=row.priority,
        created_at=row.created_at,
        definition=row.spec,
    )


def make_run(row: Any) -> Run:
    return Run.model_validate(row)


def make_task_run(row: Any) -> TaskRun:
    return TaskRun.model_validate(row)


def make_attempts(earlier: Sequence[Any], task_run: Any) -> list[Attempt]:
    """The attempts of a task run. The last one, live or not, is kept in the task run itself."""
    found = [Attempt.model_validate(row) for row in earlier]
    is_kept = any(attempt.attempt == task_run.attempt for attempt in found)
    if task_run.started_at is not None and not is_kept:
        found.append(Attempt.model_validate(task_run))
    return found


def make_explanation(found: explain.Explanation) -> Explanation:
    return Explanation.model_validate(found)


def make_job_run(row: Any) -> JobRun:
    return JobRun.model_validate(row)


def make_execution(row: Any, earlier: Mapping[str, list[Any]]) -> JobExecution:
    return JobExecution(
        **make_job_run(row).model_dump(),
        worker=row.worker,
        attempts=make_attempts(earlier.get(row.task_run_id, []), row),
    )


def _make_last_run(row: Any) -> JobRun | None:
    if row.run_id is None:
        return None
    return JobRun(
        id=row.run_id,
        job_id=row.id,
        status=row.run_status,
        created_at=row.run_created_at,
        **{
            name: getattr(row, name)
            for name in JobRun.model_fields
            if name not in ("id", "job_id", "status", "created_at")
        },
    )


def make_job(row: Any) -> Job:
    """A job in the words of both older dialects."""
    task = row.definition["tasks"][0]
    rule = (row.definition.get("schedules") or [{}])[0]
    call = task.get("http") or {}
    container = task.get("container") or {}
    cron = rule.get("schedule_cron")
    return Job(
        id=row.id,
        job_id=row.id,
        namespace=row.namespace,
        name=row.name,
        status=row.status,
        type="recurrente" if cron or rule.get("interval_seconds") else "unico",
        is_active=row.is_active,
        command=task.get("command") or container.get("command"),
        webhook_url=call.get("url"),
        payload=call.get("payload"),
        schedule=cron,
        cron_expression=cron,
        timestamp=rule.get("run_at"),
        last_date=rule.get("end_at"),
        timezone=rule.get("timezone"),
        max_retries=task.get("retry_count", 0),
        timeout_seconds=task.get("timeout_seconds"),
        tags=row.tags,
        next_run_at=row.next_run_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        definition=row.definition,
        last_run=_make_last_run(row),
    )


def make_job_status(row: Any) -> JobStatus:
    return JobStatus(
        id=row.id,
        job_id=row.id,
        status=row.status,
        attempt_count=row.attempt or 0,
        **{
            name: getattr(row, name)
            for name in JobStatus.model_fields
            if name not in ("id", "job_id", "status", "attempt_count")
        },
    )
