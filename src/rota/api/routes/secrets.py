"""Secrets: kept for tasks, never shown again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from rota.api.answers import answer
from rota.api.context import Api, Context, Namespace
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.secrets import Rotated, Secret, SecretBody, Secrets
from rota.domain.access import Permission
from rota.domain.errors import NotFound
from rota.engine.secrets import FIRST_PLACE, SecretPlace
from rota.store import secrets

router = APIRouter(prefix="/secrets", tags=["access"], route_class=LimitedRoute)
Name = Annotated[str, Path(max_length=100)]


@router.get("", response_model=Secrets)
@needs(Permission.VIEW)
async def list_secrets(api: Context, namespace: Namespace) -> Response:
    """Lists secrets by name, without what they are."""
    rows = await api.database.read(lambda tx: secrets.list_secrets(tx, namespace))
    return answer(Secrets(items=[Secret.model_validate(row) for row in rows], total=len(rows)))


@router.get("/{name}", response_model=Secret)
@needs(Permission.VIEW)
async def read_secret(api: Context, namespace: Namespace, name: Name) -> Response:
    """Whether there is such a secret, and since when; not what it is."""
    return answer(Secret.model_validate(await _require_secret(api, namespace, name)))


@router.put("/{name}", response_model=Secret, responses={201: {"model": Secret}})
@needs(Permission.EDIT)
async def put_secret(api: Context, namespace: Namespace, name: Name, body: SecretBody) -> Response:
    """Keeps a secret, encrypted. Attempts that start from now on get this value."""
    is_new = await api.engine.custody.put_secret(namespace, name, body.value.get_secret_value())
    secret = Secret.model_validate(await _require_secret(api, namespace, name))
    return answer(secret, 201 if is_new else 200)


@router.delete("/{name}", status_code=204)
@needs(Permission.EDIT)
async def delete_secret(api: Context, namespace: Namespace, name: Name) -> Response:
    """Deletes a secret. Tasks that name it fail from now on."""
    if not await api.database.transact(lambda tx: secrets.delete_secret(tx, namespace, name)):
        raise _tell_missing(name)
    return Response(status_code=204)


@router.post("/rotate", response_model=Rotated)
@needs(Permission.ADMINISTER, everywhere=True)
async def rotate_secrets(api: Context) -> Response:
    """Encrypts with the server's first key what is encrypted with another. The values stay as they are."""
    rotated = 0
    unreadable: list[str] = []
    after: SecretPlace | None = FIRST_PLACE
    while after is not None:
        report = await api.engine.custody.rotate_secrets(after)
        rotated += report.rotated
        unreadable += ["/".join(place) for place in report.unreadable]
        after = report.after
    return answer(Rotated(rotated=rotated, unreadable=unreadable))


async def _require_secret(api: Api, namespace: str, name: str) -> Any:
    row = await api.database.read(lambda tx: secrets.read_secret(tx, namespace, name))
    if row is None:
        raise _tell_missing(name)
    return row


def _tell_missing(name: str) -> NotFound:
    return NotFound(f"there is no secret {name}")
