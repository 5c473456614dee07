"""Pools."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from rota.api.answers import answer
from rota.api.context import Api, Context, Namespace
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.definitions import Pool, PoolBody, Pools
from rota.domain.access import Permission
from rota.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from rota.domain.spec_names import check_key
from rota.store import pools
from rota.store.database import Transaction

router = APIRouter(prefix="/pools", tags=["pools"], route_class=LimitedRoute)
Name = Annotated[str, Path(max_length=100)]


@router.get("", response_model=Pools)
@needs(Permission.VIEW)
async def list_pools(api: Context, namespace: Namespace) -> Response:
    """Lists pools by name, and how full they are."""
    rows = await api.database.read(lambda tx: pools.read_pools(tx, namespace))
    return answer(Pools(items=[Pool.model_validate(row) for row in rows], total=len(rows)))


@router.get("/{name}", response_model=Pool)
@needs(Permission.VIEW)
async def read_pool(api: Context, namespace: Namespace, name: Name) -> Response:
    """One pool."""
    return answer(Pool.model_validate(await _require_pool(api, namespace, name)))


@router.put("/{name}", response_model=Pool, responses={201: {"model": Pool}})
@needs(Permission.EDIT)
async def put_pool(api: Context, namespace: Namespace, name: Name, body: PoolBody) -> Response:
    """Creates or changes a pool. With fewer slots than are taken, it runs empty until it fits."""
    fault = check_key(name)
    if fault is not None:
        raise InvalidInput.of([FieldError("name", fault)])
    is_new = await api.database.transact(
        lambda tx: pools.put_pool(tx, namespace, name, slots=body.slots, description=body.description)
    )
    pool = Pool.model_validate(await _require_pool(api, namespace, name))
    return answer(pool, 201 if is_new else 200)


@router.delete("/{name}", status_code=204)
@needs(Permission.EDIT)
async def delete_pool(api: Context, namespace: Namespace, name: Name) -> Response:
    """Deletes a pool that nothing runs in or waits for."""

    async def delete(transaction: Transaction) -> None:
        row = await pools.read_pool(transaction, namespace, name)
        if row is None:
            raise NotFound(f"there is no pool {name}")
        if row.used_slots or row.queued:
            raise Conflict(f"pool {name} is in use: {row.used_slots} slots are taken and {row.queued} task runs wait")
        await pools.delete_pool(transaction, namespace, name)

    await api.database.transact(delete)
    return Response(status_code=204)


async def _require_pool(api: Api, namespace: str, name: str) -> Any:
    row = await api.database.read(lambda tx: pools.read_pool(tx, namespace, name))
    if row is None:
        raise NotFound(f"there is no pool {name}")
    return row
