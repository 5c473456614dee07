"""Workflow runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from rota.api import views
from rota.api.answers import PageQuery, answer, answer_page, read_states
from rota.api.context import Api, Caller, Context, Namespace
from rota.api.idempotency import OnlyOnce
from rota.api.lookup import require_run, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.routes.history import SinceQuery, answer_history
from rota.api.schemas.base import Page
from rota.api.schemas.runs import (
    CancelBody,
    Cancelled,
    Change,
    Explanation,
    ListQuestions,
    RerunBody,
    Retried,
    RetryBody,
    Run,
    RunChange,
    RunDetail,
    RunQuestions,
)
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput
from rota.domain.states import RunState, name_state
from rota.engine.annotate import Annotation
from rota.engine.rerun import Rerun
from rota.store.reads import runs
from rota.store.reads.pages import TimeRange
from rota.store.reads.runs import HistoryFilter, RunFilter

router = APIRouter(prefix="/workflow-runs", tags=["runs"], route_class=LimitedRoute)
StatusQuery = Annotated[list[str] | None, Query(description="May be repeated; the older systems' words are accepted.")]


@router.get("", response_model=Page[Run])
@needs(Permission.VIEW)
async def list_runs(
    api: Context, namespace: Namespace, page: PageQuery, asked: Annotated[RunQuestions, Query()]
) -> Response:
    """Lists workflow runs."""
    wanted = await read_filter(api, namespace, asked, list(RunState))
    wanted = replace(
        wanted,
        text=asked.q,
        labels=[_read_label(label) for label in asked.label],
        parent_task_run_id=asked.parent_task_run_id,
        trigger=asked.trigger,
    )
    listing = await api.database.read(lambda tx: runs.list_runs(tx, wanted, page))
    return answer_page(Page[Run], listing, views.make_run)


async def read_filter(api: Api, namespace: str, asked: ListQuestions, states: Sequence[str]) -> RunFilter:
    """What lists of runs and of task runs have in common."""
    statuses = read_states(asked.status, states, name_state)
    workflow_id = None if asked.workflow is None else (await require_workflow(api, namespace, asked.workflow)).id
    return RunFilter(namespace, statuses, workflow_id, made=TimeRange(asked.since, asked.until), tag=asked.tag)


def _read_label(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise InvalidInput.of([FieldError("label", f"expected KEY:VALUE, such as team:data, not {text[:40]!r}")])
    return key, value


@router.get("/{run_id}", response_model=RunDetail)
@needs(Permission.VIEW)
async def read_run(
    api: Context, namespace: Namespace, run_id: str, task_runs: Annotated[bool, Query()] = True
) -> Response:
    """One run with its task runs."""
    row = await require_run(api, namespace, run_id)
    rows: Any = await api.database.read(lambda tx: runs.read_task_runs_of(tx, row.id)) if task_runs else None
    found = None if rows is None else [views.make_task_run(item) for item in rows]
    return answer(RunDetail(**views.make_run(row).model_dump(), task_runs=found))


@router.patch("/{run_id}", response_model=Run)
@needs(Permission.OPERATE)
async def change_run(api: Context, namespace: Namespace, run_id: str, body: RunChange, caller: Caller) -> Response:
    """Changes a run's note and labels."""
    row = await require_run(api, namespace, run_id)
    await api.engine.annotate_run(row.id, Annotation(body.note, body.labels), caller.name)
    return answer(views.make_run(await require_run(api, namespace, row.id)))


@router.post("/{run_id}/cancel", response_model=Cancelled)
@needs(Permission.OPERATE)
async def cancel_run(api: Context, namespace: Namespace, run_id: str, body: CancelBody | None = None) -> Response:
    """Cancels what waits and asks the workers to kill what runs; clean-up tasks still run."""
    row = await require_run(api, namespace, run_id)
    report = await api.engine.cancel_run(row.id, body.reason if body else "")
    after = await require_run(api, namespace, row.id)
    return answer(Cancelled(id=row.id, status=after.status, stopped=report.stopped, asked=report.asked))


@router.post("/{run_id}/retry", response_model=Retried, responses={201: {"model": Retried}})
@needs(Permission.OPERATE)
async def retry_run(
    api: Context, namespace: Namespace, run_id: str, once: OnlyOnce, body: RetryBody | None = None
) -> Response:
    """Tries what failed again, and with it what had given up because of that. What is final in this run is executed
    again in a new one (201)."""

    async def retry() -> Response:
        row = await require_run(api, namespace, run_id)
        wanted = _read_rerun(body or RetryBody())
        report = await api.engine.retry_or_rerun(row.id, wanted)
        after = await require_run(api, namespace, report.run_id)
        retried = Retried(
            id=after.id,
            rerun_of=row.id if report.is_new else None,
            status=after.status,
            queued=report.queued,
            waiting=report.waiting,
        )
        return answer(retried, 201, _locate(after.id)) if report.is_new else answer(retried)

    return await once(retry)


@router.post("/{run_id}/rerun", status_code=201, response_model=Run)
@needs(Permission.OPERATE)
async def rerun_run(
    api: Context, namespace: Namespace, run_id: str, once: OnlyOnce, body: RerunBody | None = None
) -> Response:
    """Repeats a run that has ended, or a part of it, as a new run with the same logical date and parameters."""

    async def rerun() -> Response:
        row = await require_run(api, namespace, run_id)
        report = await api.engine.rerun_run(row.id, _read_rerun(body or RerunBody()))
        return answer(views.make_run(await require_run(api, namespace, report.run_id)), 201, _locate(report.run_id))

    return await once(rerun)


def _locate(run_id: str) -> dict[str, str]:
    return {"Location": f"/api/v1/workflow-runs/{run_id}"}


def _read_rerun(body: RerunBody) -> Rerun:
    is_whole = isinstance(body, RetryBody) and body.whole
    if is_whole and body.tasks is not None:
        raise InvalidInput.of([FieldError("tasks", "the whole run was asked for: send either tasks or whole")])
    if body.tasks is not None:
        return Rerun("tasks", tuple(dict.fromkeys(body.tasks)), body.version, body.note)
    part: Literal["whole", "unfinished"] = "unfinished" if body.from_failed and not is_whole else "whole"
    return Rerun(part, (), body.version, body.note)


@router.get("/{run_id}/history", response_model=Page[Change])
@needs(Permission.VIEW)
async def read_run_history(
    api: Context, namespace: Namespace, run_id: str, page: PageQuery, since_seq: SinceQuery = 0
) -> Response:
    """What happened in a run, in order."""
    row = await require_run(api, namespace, run_id)
    wanted = HistoryFilter(namespace, root_id=row.id, since_seq=since_seq, limit=page.limit)
    return await answer_history(api, wanted)


@router.get("/{run_id}/explain", response_model=Explanation)
@needs(Permission.VIEW)
async def explain_run(api: Context, namespace: Namespace, run_id: str) -> Response:
    """Why a run has not ended."""
    row = await require_run(api, namespace, run_id)
    return answer(views.make_explanation(await api.engine.explain_run(row.id)))
