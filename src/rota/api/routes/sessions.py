"""Signing in for browsers, and tickets for their WebSockets."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from rota.api.access import get_caller
from rota.api.answers import answer
from rota.api.context import Caller, Context
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.sessions import SessionInfo, SignIn, Ticket
from rota.api.sessions import COOKIE, SESSION_SECONDS, TICKET_SECONDS, make_csrf_token
from rota.domain.access import Permission, Principal

router = APIRouter(tags=["access"], route_class=LimitedRoute)
UNSTORED = {"Cache-Control": "no-store"}


@router.post("/session", status_code=201, response_model=SessionInfo)
@needs(Permission.OPEN)
async def sign_in(api: Context, request: Request, body: SignIn) -> Response:
    """Gives a browser a cookie for a key. It ends after twelve hours, with the key, or by signing out."""
    principal = await api.access.sign_in(request, body.key.get_secret_value())
    seconds = SESSION_SECONDS
    if principal.expires_at is not None:
        seconds = min(seconds, (principal.expires_at - await api.read_time()).total_seconds())
    opened = await api.access.sessions.open(principal, seconds)
    response = answer(_show(principal, opened.token), 201, UNSTORED)
    response.set_cookie(
        COOKIE,
        opened.token,
        max_age=int(seconds),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    await api.audit.note_sign_in(request)
    return response


@router.get("/session", response_model=SessionInfo)
@needs(Permission.SIGNED_IN)
async def read_session(request: Request, caller: Caller) -> Response:
    """Who is asking, and what they may do."""
    return answer(_show(caller, request.cookies.get(COOKIE)), headers=UNSTORED)


@router.delete("/session", status_code=204)
@needs(Permission.SIGNED_IN)
async def sign_out(api: Context, request: Request) -> Response:
    """Ends the session of the cookie."""
    cookie = request.cookies.get(COOKIE)
    if cookie is not None:
        await api.access.sessions.end(cookie)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.post("/ws-tickets", status_code=201, response_model=Ticket)
@needs(Permission.SIGNED_IN)
async def create_ticket(api: Context) -> Response:
    """A ticket for one WebSocket, which cannot show a header; it is good for half a minute, on any node."""
    opened = await api.access.sessions.open(get_caller(), TICKET_SECONDS, is_ticket=True)
    return answer(Ticket(ticket=opened.token, expires_at=opened.expires_at), 201, UNSTORED)


def _show(principal: Principal, cookie: str | None) -> SessionInfo:
    return SessionInfo(
        name=principal.name,
        role=principal.role,
        namespaces=list(principal.namespaces),
        kind=principal.kind,
        csrf_token=None if cookie is None else make_csrf_token(cookie),
    )
