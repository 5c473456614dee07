"""The worker protocol's JSON on the hot path: read and written without pydantic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.ids import is_uuid
from rota.domain.states import name_state
from rota.domain.work import Assignment, Finished, LogChunk, Report, ReportResult

UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
MAX_CLAIM = 1000
MAX_EVENTS = 10_000
Small = 2**31 - 1
TaskRunId = Annotated[str, Meta(min_length=36, max_length=36, description="A UUID.")]
AttemptNumber = Annotated[int, Meta(ge=0, le=Small)]
Status = Literal["success", "completed", "succeeded", "failed", "cancelled", "canceled", "skipped"]
FINAL = ("success", "failed", "cancelled", "skipped")


class Started(Struct, tag="started", forbid_unknown_fields=True, frozen=True):
    """The attempt is being executed. (It is counted as started since it was claimed.)"""

    task_run_id: TaskRunId
    attempt: AttemptNumber


class Log(Struct, tag="log", forbid_unknown_fields=True, frozen=True):
    """Bytes of an attempt's log: `data` in base64, or `text`."""

    task_run_id: TaskRunId
    attempt: AttemptNumber
    offset: Annotated[int, Meta(ge=0, le=2**62)]
    data: bytes | UnsetType = UNSET
    text: str | UnsetType = UNSET
    stream: Annotated[str, Meta(max_length=20)] = "output"


class End(Struct, tag="finished", forbid_unknown_fields=True, frozen=True):
    """How an attempt ended."""

    task_run_id: TaskRunId
    attempt: AttemptNumber
    status: Status
    exit_code: Annotated[int, Meta(ge=-Small - 1, le=Small)] | None = None
    http_status: Annotated[int, Meta(ge=0, le=999)] | None = None
    error_type: Annotated[str, Meta(max_length=40)] | None = None
    error: str | None = None
    output: Any = None
    usage: dict[str, float] = {}
    retry_after_seconds: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None
    is_unconfirmed: bool = False


Event = Started | Log | End


class Events(Struct, forbid_unknown_fields=True, frozen=True):
    """A batch of events, and how many new assignments are wanted with the answer."""

    events: Annotated[list[Event], Meta(max_length=MAX_EVENTS)] = []
    claim: Annotated[int, Meta(ge=0, le=MAX_CLAIM)] = 0


class RawEvents(Struct, forbid_unknown_fields=True, frozen=True):
    """The same, its items not looked at yet."""

    events: Annotated[list[msgspec.Raw], Meta(max_length=MAX_EVENTS)] = []
    claim: Annotated[int, Meta(ge=0, le=MAX_CLAIM)] = 0


class AssignmentView(Struct, frozen=True):
    """One attempt to execute; `id` is the task run's, for the one-at-a-time report."""

    id: str
    name: str
    command: str | list[str] | None
    task_run_id: str
    attempt: int
    run_id: str
    workflow: str
    task: str
    kind: str
    spec: dict[str, Any]
    timeout_seconds: float | None
    lease_seconds: float
    idempotency_key: str
    logical_date: str
    map_index: int
    try_number: int
    traceparent: str
    secrets: tuple[str, ...]


class EventsReply(Struct, frozen=True):
    """One result for each event, in order, and new assignments."""

    results: Sequence[ReportResult]
    assignments: Sequence[AssignmentView]


NO_UUID = ReportResult(False, "invalid_input", "task_run_id: expected a UUID")

encode = msgspec.json.Encoder().encode
_decode_all = msgspec.json.Decoder(Events).decode
_decode_raw = msgspec.json.Decoder(RawEvents).decode
_decode_one: Callable[[msgspec.Raw], Event] = msgspec.json.Decoder(Event).decode


def read_events(body: bytes) -> tuple[list[Event | ReportResult], int]:
    """The events, and how many assignments are wanted. In place of a malformed event stands its refusal."""
    try:
        batch = _decode_all(body)
        return list(batch.events), batch.claim
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        raw = _decode_raw(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput.of([FieldError("body", f"cannot be read: {error}")]) from error
    return [_read_one(item) for item in raw.events], raw.claim


def _read_one(item: msgspec.Raw) -> Event | ReportResult:
    try:
        return _decode_one(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ReportResult(False, "invalid_input", str(error))


def to_report(event: Log | End) -> Report | ReportResult:
    """What the engine is told; a refusal for what it could not store."""
    if not is_uuid(event.task_run_id):
        return NO_UUID
    task_run_id = event.task_run_id.lower()
    if isinstance(event, Log):
        data = event.data if event.data is not UNSET else b""
        if event.text is not UNSET:
            data += event.text.encode()
        return LogChunk(task_run_id, event.attempt, event.offset, data, event.stream)
    return Finished(
        task_run_id,
        event.attempt,
        name_state(event.status),
        event.exit_code,
        event.http_status,
        event.error_type,
        event.error,
        event.output,
        event.usage,
        event.retry_after_seconds,
        event.is_unconfirmed,
    )


def view_assignment(assignment: Assignment) -> AssignmentView:
    """An assignment as workers read it; the first three fields are for simple ones."""
    return AssignmentView(
        assignment.task_run_id,
        f"{assignment.workflow}.{assignment.task}",
        assignment.spec.get("command"),
        assignment.task_run_id,
        assignment.attempt,
        assignment.run_id,
        assignment.workflow,
        assignment.task,
        assignment.kind,
        dict(assignment.spec),
        assignment.timeout_seconds,
        assignment.lease_seconds,
        assignment.idempotency_key,
        assignment.logical_date,
        assignment.map_index,
        assignment.try_number,
        assignment.traceparent,
        assignment.secrets,
    )
