"""What every endpoint needs: the engine, the database, options, and whose data it is about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from starlette.requests import HTTPConnection, Request

from rota.api.access import Access, get_caller, require_namespace
from rota.api.audit import AuditLog
from rota.api.identities import Identities
from rota.api.live import Feed
from rota.api.options import ApiOptions
from rota.api.polls import Polls
from rota.domain.access import Principal
from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec_names import check_namespace
from rota.engine.engine import Engine
from rota.store.database import Database
from rota.store.schedules import read_now


@dataclass(frozen=True, slots=True)
class Api:
    """The parts behind the endpoints, made once by `make_api`."""

    engine: Engine
    database: Database
    options: ApiOptions
    identities: Identities
    polls: Polls
    access: Access
    audit: AuditLog
    feed: Feed | None = None

    async def read_time(self) -> datetime:
        """The database's time."""
        return await self.database.read(read_now)


def get_api(connection: HTTPConnection) -> Api:
    api = connection.app.state.api
    if not isinstance(api, Api):
        raise TypeError("the application was not made by make_api")
    return api


# Dependencies are coroutines: the framework sends plain functions to a thread, which costs more than most requests do.
async def provide_api(request: Request) -> Api:
    return get_api(request)


async def get_namespace(
    namespace: Annotated[str, Query(description="The tenant whose resources are meant.", max_length=63)] = "default",
) -> str:
    """The namespace that is asked for; one that the caller may not see does not exist."""
    fault = check_namespace(namespace)
    if fault is not None:
        raise InvalidInput.of([FieldError("namespace", fault)])
    return require_namespace(namespace)


# Who is asking, for endpoints that note it.
Caller = Annotated[Principal, Depends(get_caller)]
Context = Annotated[Api, Depends(provide_api)]
Namespace = Annotated[str, Depends(get_namespace)]
