"""The endpoints of workers."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from rota.api.answers import JSON, answer
from rota.api.context import Api, Context
from rota.api.permissions import needs
from rota.api.protocol import shell, wire
from rota.api.protocol.openapi import EVENTS_BODY, EVENTS_REPLY
from rota.api.requests import WorkerRoute
from rota.api.schemas import workers as shapes
from rota.api.schemas.workers import Assignment, HeartbeatBody, Orders, RegisterBody, Registered
from rota.domain.access import Permission
from rota.domain.errors import InvalidInput
from rota.domain.ids import is_uuid
from rota.domain.work import AttemptKey, Registration, RenewReply, Report, ReportResult, WorkerIdentity
from rota.store import attempts
from rota.store.wakeups import Topic

router = APIRouter(tags=["worker protocol"], route_class=WorkerRoute)
Format = Annotated[Literal["json", "sh"], Query(description="`sh`: variables that a shell can `eval`.")]


@router.post("/workers/register", status_code=201, response_model=Registered)
@needs(Permission.WORK)
async def register_worker(api: Context, body: RegisterBody, format: Format = "json") -> Response:
    """Makes a worker known; every later call carries the incarnation that it gets."""
    registered = await api.engine.register(
        Registration(
            name=body.worker_id,
            hostname=body.hostname,
            queues=tuple(body.queues),
            kinds=tuple(body.kinds),
            labels=body.labels,
            concurrency=body.concurrency,
            version=body.version,
        )
    )
    if format == "sh":
        return Response(shell.write_registered(registered), 201, media_type=shell.SHELL)
    return answer(
        Registered(
            id=registered.worker_id,
            worker_id=registered.worker_id,
            incarnation=registered.incarnation,
            status="active",
            heartbeat_interval_seconds=registered.heartbeat_interval_seconds,
            lease_seconds=registered.lease_seconds,
        ),
        201,
    )


@router.post("/workers/heartbeat", response_model=Orders)
@needs(Permission.WORK)
async def take_heartbeat(api: Context, body: HeartbeatBody, request: Request) -> Response:
    """Renews the leases of a worker and of what it executes; with `wait`, also waits for orders."""
    identity = await api.identities.identify(request, body.worker_id, body.incarnation)
    running = [AttemptKey(key.task_run_id, key.attempt) for key in body.running]
    seen = api.database.wakeups.count(Topic.ORDERS)
    reply = await api.engine.renew(identity, running)
    if not body.wait or reply.cancel or reply.lost:
        return _answer_orders(api, reply, seen, has_orders=bool(reply.cancel or reply.lost))
    has_orders = await _wait_for_orders(api, identity, request, body)
    seen = api.database.wakeups.count(Topic.ORDERS)
    if has_orders and running:
        reply = await api.engine.renew(identity, running)
    return _answer_orders(api, reply, seen, has_orders=has_orders)


async def _wait_for_orders(api: Api, identity: WorkerIdentity, request: Request, body: HeartbeatBody) -> bool:
    """Holds the worker's line. When it breaks and no other is open, the worker may be dead."""
    wakeups = api.database.wakeups
    node, _, count = body.orders_seen.rpartition(":")
    is_ours = node == api.polls.node and count.isdigit()
    seen = int(count) if is_ours else wakeups.count(Topic.ORDERS)
    seconds = min(body.wait, api.options.max_wait_seconds)
    with api.polls.listen(identity.incarnation):
        held = await api.polls.hold(request, wakeups.wait(Topic.ORDERS, seen, seconds))
    if held.is_gone and not api.polls.count_lines(identity.incarnation):
        await api.engine.doubt(identity)
    return bool(held.value)


def _answer_orders(api: Api, reply: RenewReply, seen: int, *, has_orders: bool) -> Response:
    return answer(
        Orders(
            cancel=[shapes.AttemptKey.model_validate(key) for key in reply.cancel],
            lost=[shapes.AttemptKey.model_validate(key) for key in reply.lost],
            is_draining=reply.is_draining,
            has_orders=has_orders,
            orders_seen=f"{api.polls.node}:{seen}",
        )
    )


@router.get(
    "/workers/{worker}/next",
    response_model=Assignment | list[Assignment],
    responses={204: {"description": "Nothing to do."}},
)
@needs(Permission.WORK)
async def hand_out(
    api: Context,
    worker: str,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=wire.MAX_CLAIM)] = 1,
    wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for the first one.")] = 0,
    format: Format = "json",
) -> Response:
    """One assignment, a list of them with a limit above 1, or 204 when there is nothing to do."""
    if format == "sh" and limit > 1:
        raise InvalidInput("with format=sh there is one assignment at a time: leave limit out")
    identity = await api.identities.identify(request, worker)
    seconds = min(wait, api.options.max_wait_seconds)
    claiming = api.engine.claim(identity, limit=limit, wait_seconds=seconds)
    assignments = (await api.polls.hold(request, claiming)).value if seconds else await claiming
    if not assignments:
        return Response(status_code=204)
    if format == "sh":
        return Response(shell.write_assignment(assignments[0]), media_type=shell.SHELL)
    views = [wire.view_assignment(assignment) for assignment in assignments]
    return Response(wire.encode(views if limit > 1 else views[0]), media_type=JSON)


@router.post(
    "/workers/{worker}/events",
    responses={200: EVENTS_REPLY},
    openapi_extra={"requestBody": EVENTS_BODY},
)
@needs(Permission.WORK)
async def take_events(api: Context, worker: str, request: Request) -> Response:
    """Records logs and outcomes, each on its own, and hands out new work with the answer."""
    identity = await api.identities.identify(request, worker)
    events, claim = wire.read_events(await request.body())
    results: list[ReportResult | None] = []
    reports: list[Report] = []
    for event in events:
        item = event if isinstance(event, wire.Started | ReportResult) else wire.to_report(event)
        if isinstance(item, ReportResult):
            results.append(item)
        elif isinstance(item, wire.Started):
            results.append(await _confirm_started(api, identity, item))
        else:
            results.append(None)
            reports.append(item)
    reply = await api.engine.report(identity, reports, claim=claim)
    landed = iter(reply.results)
    answers = [next(landed) if result is None else result for result in results]
    assignments = [wire.view_assignment(assignment) for assignment in reply.assignments]
    return Response(wire.encode(wire.EventsReply(answers, assignments)), media_type=JSON)


async def _confirm_started(api: Api, identity: WorkerIdentity, event: wire.Started) -> ReportResult:
    """An attempt counts as started since it was claimed; here it is only told whose it is."""
    if not is_uuid(event.task_run_id):
        return wire.NO_UUID
    key = (event.task_run_id.lower(), event.attempt, identity.incarnation)
    if not await api.database.read(lambda tx: attempts.find_owned(tx, [key])):
        return ReportResult(False, "late", "this attempt is over or not yours")
    return ReportResult(True)


@router.post("/workers/{worker}/leave", status_code=204)
@needs(Permission.WORK)
async def take_leave(api: Context, worker: str, request: Request) -> Response:
    """The worker stops; what it still holds is queued again at once."""
    await api.engine.leave(await api.identities.identify(request, worker))
    return Response(status_code=204)
