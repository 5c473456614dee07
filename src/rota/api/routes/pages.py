"""What a browser finds at the root: the list of what can be called, and the document behind it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from rota.api.listing import write_listing
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.domain.access import Permission

router = APIRouter(route_class=LimitedRoute, include_in_schema=False)


@router.get("/openapi.json")
@needs(Permission.SIGNED_IN)
async def show_document(request: Request) -> JSONResponse:
    """What can be called, as OpenAPI."""
    return JSONResponse(request.app.openapi())


@router.get("/docs")
@needs(Permission.SIGNED_IN)
async def show_listing(request: Request) -> HTMLResponse:
    """What can be called, as a page."""
    return HTMLResponse(write_listing(request.app.openapi()))


@router.get("/")
@needs(Permission.OPEN)
async def go_to_listing() -> RedirectResponse:
    return RedirectResponse("/docs")
