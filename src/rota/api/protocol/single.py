"""The one-at-a-time report of simple and older workers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from rota.api.answers import answer
from rota.api.context import Api, Context
from rota.api.errors import to_invalid_input
from rota.api.lookup import read_id
from rota.api.permissions import needs
from rota.api.protocol import wire
from rota.api.protocol.openapi import LOG_BODY
from rota.api.requests import WorkerRoute, read_json
from rota.api.schemas.workers import LogBody, LogQuestions, Reported
from rota.domain.access import Permission
from rota.domain.errors import Conflict, FieldError, InvalidInput
from rota.domain.states import name_state
from rota.domain.work import AttemptKey, ErrorType, Finished, LogChunk, Report, ReportResult, WorkerIdentity
from rota.store.reads import logs, workers

router = APIRouter(tags=["worker protocol"], route_class=WorkerRoute)


@router.post("/jobs/{job_id}/log", response_model=Reported, openapi_extra={"requestBody": LOG_BODY})
@needs(Permission.WORK)
async def take_log(
    api: Context,
    job_id: str,
    request: Request,
    asked: Annotated[LogQuestions, Query()],
) -> Response:
    """Adds to an attempt's log and, with a status or an exit code, ends it.

    `job_id` is the job or the task run that the worker executes. The body is JSON, or the log as raw bytes with
    everything else in the query.
    """
    if request.headers.get("content-type", "").startswith("application/json"):
        body = _read_body(await read_json(request))
        data = body.logs.encode()
    else:
        if asked.worker_id is None:
            raise InvalidInput.of([FieldError("worker_id", "is required: in the query with a raw body, or send JSON")])
        body = LogBody(**asked.model_dump())
        data = await request.body()
    word = _choose_status(body)
    identity = await api.identities.identify(request, body.worker_id, body.incarnation)
    key = await _find_attempt(api, identity, read_id(job_id, "job or task run"), body.attempt)
    results = await _report(api, identity, key, _make_end(key, body, word), data)
    refused = next((result for result in results if not result.is_accepted), None)
    if refused is not None:
        raise Conflict(refused.detail, code=refused.code)
    last = results[-1] if results else ReportResult(True)
    return answer(
        Reported(
            id=job_id,
            task_run_id=key.task_run_id,
            attempt=key.attempt,
            status=word,
            is_accepted=True,
            code=last.code,
            detail=last.detail,
        )
    )


def _read_body(data: object) -> LogBody:
    try:
        return LogBody.model_validate(data)
    except ValidationError as error:
        raise to_invalid_input(error) from error


async def _find_attempt(api: Api, identity: WorkerIdentity, wanted_id: str, attempt: int | None) -> AttemptKey:
    held = await api.database.read(lambda tx: workers.find_held_attempt(tx, identity.incarnation, wanted_id))
    if held is not None and attempt in (None, held.attempt):
        return AttemptKey(held.id, held.attempt)
    if attempt is None:
        raise Conflict(f"this worker executes no attempt of {wanted_id} (any more): nothing was recorded", code="late")
    # It is over or belongs to another worker; the engine refuses it and notes that.
    return AttemptKey(wanted_id, attempt)


async def _report(
    api: Api, identity: WorkerIdentity, key: AttemptKey, ends: list[Report], data: bytes
) -> list[ReportResult]:
    reports = ends
    if data:
        end = await api.database.read(lambda tx: logs.read_log_size(tx, key.task_run_id, key.attempt))
        reports = [LogChunk(key.task_run_id, key.attempt, end, data), *ends]
    return list((await api.engine.report(identity, reports)).results)


def _make_end(key: AttemptKey, body: LogBody, word: str) -> list[Report]:
    """The result, unless the attempt goes on."""
    if word == "running":
        return []
    is_bad_exit = word == "failed" and body.exit_code not in (None, 0)
    end = Finished(
        key.task_run_id,
        key.attempt,
        word,
        exit_code=body.exit_code,
        error_type=ErrorType.EXIT_CODE if is_bad_exit else None,
        error=body.error or (f"exit code {body.exit_code}" if is_bad_exit else None),
        output=body.output,
    )
    return [end]


def _choose_status(body: LogBody) -> str:
    """The outcome that is reported, or `running` when the attempt goes on."""
    if body.status is None:
        return "running" if body.exit_code is None else ("success" if body.exit_code == 0 else "failed")
    word = name_state(body.status)
    if word != "running" and word not in wire.FINAL:
        expected = ", ".join(("running", *wire.FINAL))
        raise InvalidInput.of([FieldError("status", f"expected one of {expected}, not {body.status!r}")])
    return word
