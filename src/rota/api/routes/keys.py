"""API keys."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from rota.api.answers import PageQuery, answer, answer_page
from rota.api.context import Api, Caller, Context
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.base import Page
from rota.api.schemas.keys import ApiKey, ApiKeyBody, CreatedApiKey
from rota.domain.access import Permission
from rota.domain.api_key import NewKey
from rota.domain.errors import NotFound
from rota.store import api_keys

router = APIRouter(prefix="/api-keys", tags=["access"], route_class=LimitedRoute)
Reference = Annotated[str, Path(max_length=200, description="Its id or its name.")]
UNSTORED = {"Cache-Control": "no-store"}


@router.get("", response_model=Page[ApiKey])
@needs(Permission.ADMINISTER, everywhere=True)
async def list_api_keys(
    api: Context, page: PageQuery, revoked: Annotated[bool, Query(description="Also those.")] = False
) -> Response:
    """Lists keys, the newest first."""
    listing = await api.database.read(lambda tx: api_keys.list_keys(tx, page, includes_revoked=revoked))
    return answer_page(Page[ApiKey], listing, ApiKey.model_validate)


@router.post("", status_code=201, response_model=CreatedApiKey)
@needs(Permission.ADMINISTER, everywhere=True)
async def create_api_key(api: Context, caller: Caller, body: ApiKeyBody) -> Response:
    """Makes a key, which is shown only now. (Names are unique, so that a request may be repeated without harm.)"""
    wanted = NewKey(body.name, body.role, tuple(body.namespaces), body.expires_in_seconds)
    created = await api.engine.custody.create_key(wanted, created_by=caller.name)
    api.access.keys.forget()
    row = await _require_key(api, created.id)
    shape = CreatedApiKey(**ApiKey.model_validate(row).model_dump(), key=created.key)
    return answer(shape, 201, {**UNSTORED, "Location": f"/api/v1/api-keys/{created.id}"})


@router.get("/{key}", response_model=ApiKey)
@needs(Permission.ADMINISTER, everywhere=True)
async def read_api_key(api: Context, key: Reference) -> Response:
    """One key."""
    return answer(ApiKey.model_validate(await _require_key(api, key)))


@router.delete("/{key}", status_code=204)
@needs(Permission.ADMINISTER, everywhere=True)
async def revoke_api_key(api: Context, key: Reference) -> Response:
    """Revokes a key: within seconds no node accepts it any more."""
    await api.engine.custody.revoke_key(key)
    api.access.keys.forget()
    return Response(status_code=204)


async def _require_key(api: Api, key: str) -> Any:
    row = await api.database.read(lambda tx: api_keys.read_key(tx, key))
    if row is None:
        raise NotFound(f"there is no API key {key}")
    return row
