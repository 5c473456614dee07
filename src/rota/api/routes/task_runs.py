"""Task runs, their logs, and those that failed for good."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from rota.api import views
from rota.api.answers import PageQuery, answer, answer_page
from rota.api.context import Api, Caller, Context, Namespace
from rota.api.log_tail import LogTail, decode_log, make_log_text, read_part
from rota.api.lookup import read_id, require_run, require_task_run
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.routes.runs import read_filter
from rota.api.schemas.base import Page
from rota.api.schemas.runs import (
    CancelBody,
    Cancelled,
    DeadLetterBody,
    DeadLetterResult,
    DeadLetterResults,
    Explanation,
    LogQuestions,
    LogText,
    MarkBody,
    Retried,
    TaskRun,
    TaskRunDetail,
    TaskRunQuestions,
)
from rota.api.streams import EVENT_STREAM, EventStream, LastEventId, read_last_id
from rota.domain.access import Permission
from rota.domain.errors import NotFound, RotaError
from rota.domain.states import TaskState
from rota.engine.mark import Mark
from rota.store.reads import runs
from rota.store.reads.runs import RunFilter

router = APIRouter(tags=["task runs"], route_class=LimitedRoute)
# As much as an attempt keeps: head, tail, and the line between them.
SHOWN_LOG_BYTES = 2_200_000


@router.get("/task-runs", response_model=Page[TaskRun])
@needs(Permission.VIEW)
async def list_task_runs(
    api: Context, namespace: Namespace, page: PageQuery, asked: Annotated[TaskRunQuestions, Query()]
) -> Response:
    """Lists task runs, those of items of mapped tasks included."""
    wanted = replace(
        await read_filter(api, namespace, asked, list(TaskState)),
        text=asked.q,
        run_id=None if asked.run_id is None else read_id(asked.run_id, "workflow run"),
        task=asked.task,
        map_index=asked.map_index,
    )
    listing = await api.database.read(lambda tx: runs.list_task_runs(tx, wanted, page))
    return answer_page(Page[TaskRun], listing, views.make_task_run)


@router.get("/task-runs/{task_run_id}", response_model=TaskRunDetail)
@needs(Permission.VIEW)
async def read_task_run(
    api: Context,
    namespace: Namespace,
    task_run_id: str,
    logs: Annotated[bool, Query(description="Whether to answer the last attempt's log, too.")] = True,
) -> Response:
    """One task run with its attempts, its output and its log."""
    row = await require_task_run(api, namespace, task_run_id)
    earlier = await api.database.read(lambda tx: runs.read_attempts(tx, [row.id]))
    text = None
    if logs:
        text = decode_log(await read_part(api, row.id, row.attempt, 0, SHOWN_LOG_BYTES), 0, is_final=True)[0]
    detail = TaskRunDetail(
        **views.make_task_run(row).model_dump(),
        output=row.output,
        item=row.item,
        attempts=views.make_attempts(earlier, row),
        logs=text,
    )
    return answer(detail)


@router.get(
    "/task-runs/{task_run_id}/logs",
    response_model=LogText,
    responses={
        200: {
            "content": {"application/octet-stream": {}, EVENT_STREAM: {"schema": {"type": "string"}}},
            "description": "The log, as text, raw or followed.",
        }
    },
)
@needs(Permission.VIEW)
async def read_logs(
    api: Context,
    namespace: Namespace,
    task_run_id: str,
    asked: Annotated[LogQuestions, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """A part of an attempt's log; or, followed, all that is written until the attempt is over."""
    row = await require_task_run(api, namespace, task_run_id)
    number = row.attempt if asked.attempt is None else asked.attempt
    if number > row.attempt:
        raise NotFound(f"task run {row.id} has had {row.attempt} attempts")
    if asked.follow:
        offset = asked.offset if last_event_id is None else read_last_id(last_event_id) or 0
        return EventStream(api, LogTail(api, namespace, row.id, asked.attempt, offset))
    part = await read_part(api, row.id, number, asked.offset, asked.limit)
    if asked.raw:
        data = b"".join(piece for _offset, piece in part.pieces)
        headers = {"X-Rota-Next-Offset": str(part.next_offset), "X-Content-Type-Options": "nosniff"}
        return Response(data, headers=headers, media_type="application/octet-stream")
    return answer(make_log_text(row, number, asked.offset, part))


@router.post("/task-runs/{task_run_id}/cancel", response_model=Cancelled)
@needs(Permission.OPERATE)
async def cancel_task_run(
    api: Context, namespace: Namespace, task_run_id: str, body: CancelBody | None = None
) -> Response:
    """Cancels one task run; for those that wait for it, it counts as failed."""
    row = await require_task_run(api, namespace, task_run_id)
    report = await api.engine.cancel_task_run(row.id, body.reason if body else "")
    after = await require_task_run(api, namespace, row.id)
    return answer(Cancelled(id=row.id, status=after.status, stopped=report.stopped, asked=report.asked))


@router.post("/task-runs/{task_run_id}/retry", response_model=Retried)
@needs(Permission.OPERATE)
async def retry_task_run(api: Context, namespace: Namespace, task_run_id: str) -> Response:
    """Tries a failed task run again."""
    row = await require_task_run(api, namespace, task_run_id)
    report = await api.engine.retry_task_run(row.id)
    after = await require_task_run(api, namespace, row.id)
    return answer(Retried(id=row.id, status=after.status, queued=report.queued, waiting=report.waiting))


@router.post("/task-runs/{task_run_id}/mark", response_model=TaskRun)
@needs(Permission.OPERATE)
async def mark_task_run(
    api: Context, namespace: Namespace, task_run_id: str, body: MarkBody, caller: Caller
) -> Response:
    """Declares how a task run ended, with all that follows; a worker that is at it is asked to stop."""
    row = await require_task_run(api, namespace, task_run_id)
    await api.engine.mark_task_run(row.id, Mark(body.status, body.reason, caller.name))
    return answer(views.make_task_run(await require_task_run(api, namespace, row.id)))


@router.get("/task-runs/{task_run_id}/explain", response_model=Explanation)
@needs(Permission.VIEW)
async def explain_task_run(api: Context, namespace: Namespace, task_run_id: str) -> Response:
    """Why a task run is not running."""
    row = await require_task_run(api, namespace, task_run_id)
    return answer(views.make_explanation(await api.engine.explain_task_run(row.id)))


@router.get("/dead-letters", response_model=Page[TaskRun])
@needs(Permission.VIEW)
async def list_dead_letters(api: Context, namespace: Namespace, page: PageQuery) -> Response:
    """Task runs that failed for good."""
    wanted = RunFilter(namespace, ["failed"])
    listing = await api.database.read(lambda tx: runs.list_task_runs(tx, wanted, page))
    return answer_page(Page[TaskRun], listing, views.make_task_run)


@router.post("/dead-letters/retry", response_model=DeadLetterResults)
@needs(Permission.OPERATE)
async def retry_dead_letters(api: Context, namespace: Namespace, body: DeadLetterBody) -> Response:
    """Tries failed task runs again; each is retried or refused on its own."""
    by_run: dict[str, list[Any]] = {}
    results: list[DeadLetterResult] = []
    for wanted in dict.fromkeys(body.ids):
        try:
            row = await require_task_run(api, namespace, wanted)
        except NotFound as error:
            results.append(_refuse(wanted, error))
        else:
            by_run.setdefault(row.run_id, []).append(row)
    for run_id, rows in by_run.items():
        results += await _retry_in_run(api, namespace, run_id, rows)
    return answer(DeadLetterResults(retried=sum(result.is_accepted for result in results), items=results))


async def _retry_in_run(api: Api, namespace: str, run_id: str, rows: list[Any]) -> list[DeadLetterResult]:
    try:
        await require_run(api, namespace, run_id)
        await api.engine.retry_run(run_id, [row.id for row in rows])
    except RotaError as error:
        return [_refuse(row.id, error) for row in rows]
    return [
        DeadLetterResult(id=row.id, is_accepted=True, code="ok", detail="")
        if row.status == "failed"
        else DeadLetterResult(id=row.id, is_accepted=False, code="conflict", detail=f"it is {row.status}, not failed")
        for row in rows
    ]


def _refuse(task_run_id: str, error: RotaError) -> DeadLetterResult:
    return DeadLetterResult(id=task_run_id, is_accepted=False, code=error.code, detail=error.detail)
