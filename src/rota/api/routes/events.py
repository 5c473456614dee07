"""Live events: what happens, as it happens."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from rota.api import frames
from rota.api.answers import answer
from rota.api.context import Api, Context, Namespace, get_api, get_namespace
from rota.api.errors import to_invalid_input
from rota.api.live import Feed, Follower, pour
from rota.api.lookup import require_run, require_workflow
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import Page
from rota.api.schemas.events import EventQuestions, EventSink
from rota.api.sockets import SocketRoute
from rota.api.streams import CONNECTION, EVENT_STREAM, EventStream, LastEventId, make_terms, read_last_id
from rota.domain.access import Permission
from rota.domain.errors import FieldError, InvalidInput, NotFound, Unavailable
from rota.domain.events import EventFilter, EventType
from rota.store import sinks
from rota.store.outbox import read_last_seq
from rota.store.wakeups import Topic

router = APIRouter(tags=["events"], route_class=LimitedRoute)


@router.get(
    "/events",
    responses={200: {"content": {EVENT_STREAM: {"schema": {"type": "string"}}}, "description": "Events, for ever."}},
    response_class=Response,
)
@needs(Permission.VIEW)
async def stream_events(
    api: Context,
    namespace: Namespace,
    asked: Annotated[EventQuestions, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """What happens, as server-sent events."""
    since = asked.since if last_event_id is None else read_last_id(last_event_id)
    wanted = await _choose(api, namespace, asked, since)
    return EventStream(api, _get_feed(api).follow(wanted, frames.write_sse, since))


@needs(Permission.VIEW)
async def send_updates(websocket: WebSocket) -> None:
    """What happens, as one WebSocket message each."""
    api = get_api(websocket)
    asked = _read_questions(websocket)
    namespace = await get_namespace(websocket.query_params.get("namespace", "default"))
    wanted = await _choose(api, namespace, asked, asked.since)
    connection = websocket.scope["extensions"].get(CONNECTION)
    encode = frames.write_line if connection is None else frames.frame_text
    with _get_feed(api).follow(wanted, encode, asked.since) as follower:
        since = await follower.start()
        await websocket.accept(headers=[(b"x-rota-since", str(since).encode())])
        await _update(api, websocket, follower, connection)


router.routes.append(SocketRoute("/ws/updates", send_updates))


async def _update(api: Api, websocket: WebSocket, follower: Follower, connection: Any) -> None:
    async def send_lines(data: bytes) -> None:
        for line in data.splitlines():
            await websocket.send_text(line.decode())

    async def wait_until_gone() -> None:
        # What clients say is not asked for.
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass

    write = send_lines if connection is None else connection["write"]
    ending = await pour(follower, write, wait_until_gone, make_terms(api))
    code = frames.NOT_ALLOWED if ending.is_refused else frames.TRY_AGAIN_LATER
    code = frames.GOING_AWAY if ending.is_closing else code
    reason = "the server stops" if ending.is_closing else ending.reason
    if not reason:
        raise WebSocketDisconnect(1005)
    if connection is None:
        await websocket.close(code, reason)
    else:
        connection["drop"](frames.frame_close(code, reason))


@router.get("/event-sinks", response_model=Page[EventSink])
@needs(Permission.ADMINISTER, everywhere=True)
async def list_event_sinks(api: Context) -> Response:
    """How far each has come, and what went wrong."""
    rows = await api.database.read(sinks.read_sinks)
    items = [EventSink.model_validate(row) for row in rows]
    return answer(Page[EventSink](items=items, total=len(items), next_cursor=None))


@router.post("/event-sinks/{name}/enable", response_model=EventSink)
@needs(Permission.ADMINISTER, everywhere=True)
async def enable_event_sink(api: Context, name: str) -> Response:
    """Tries a disabled one again, from where it was: nothing is left out."""
    if not await api.database.transact(lambda tx: sinks.enable_sink(tx, name)):
        raise NotFound(f"there is no event sink {name[:200]}")
    api.database.wakeups.call([Topic.CLUSTER])
    return answer(EventSink.model_validate(await api.database.read(lambda tx: sinks.read_sink(tx, name))))


def _get_feed(api: Api) -> Feed:
    if api.feed is None:
        raise Unavailable("this server relays no events")
    return api.feed


def _read_questions(websocket: WebSocket) -> EventQuestions:
    """The query of a connection, which the framework does not read."""
    query = websocket.query_params
    values = {name: query.getlist(name) if name == "type" else query[name] for name in query}
    try:
        return EventQuestions.model_validate(values)
    except ValidationError as error:
        raise to_invalid_input(error) from error


async def _choose(api: Api, namespace: str, asked: EventQuestions, since: int | None) -> EventFilter:
    """Which events are asked for; everything that is named must be there."""
    run_id = None if asked.run is None else str((await require_run(api, namespace, asked.run)).id)
    workflow_id = None if asked.workflow is None else (await require_workflow(api, namespace, asked.workflow)).id
    last = await api.database.read(read_last_seq) if since else 0
    if since is not None and since > last:
        reason = f"nothing has happened yet after {last}: leave it out to begin now"
        raise InvalidInput.of([FieldError("since", reason)])
    return EventFilter(namespace, frozenset(EventType(word) for word in asked.type), workflow_id, run_id)
