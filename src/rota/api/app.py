"""The API as an ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from rota import __version__
from rota.api.access import Access
from rota.api.audit import AuditLog
from rota.api.context import Api
from rota.api.dispatch import Dispatcher
from rota.api.errors import PROBLEM_JSON, install_handlers
from rota.api.identities import Identities
from rota.api.live import Feed
from rota.api.options import ApiOptions
from rota.api.polls import Polls
from rota.api.protocol import routes as protocol
from rota.api.protocol import single
from rota.api.protocol.openapi import COMPONENTS
from rota.api.requests import LimitedRoute
from rota.api.routes import (
    approvals,
    audit,
    backfills,
    cluster,
    dags,
    events,
    graphs,
    history,
    jobs,
    keys,
    pages,
    pools,
    queues,
    runs,
    schedules,
    secrets,
    service,
    sessions,
    task_runs,
    tasks,
    versions,
    workers,
    workflows,
)
from rota.api.schemas.base import Problem
from rota.api.sockets import SocketRoute
from rota.engine.engine import Engine
from rota.store.database import Database

PREFIX = "/api/v1"
# The protocol comes first: `/workers/register` is not the worker named register.
PARTS = (
    *(protocol, single, workflows, versions, tasks, schedules, backfills, graphs, runs, task_runs, approvals, jobs),
    *(workers, pools, queues, keys, secrets, sessions, audit, cluster, dags, history, events, service),
)
DESCRIPTION = "Workflows and jobs that run on time. Everything here is also found at the root, without `/api/v1`."


class Rota(FastAPI):
    """The framework's application, with a document that also tells what the framework does not know."""

    def find_methods(self, path: str) -> set[str]:
        """What an address can be asked with, over all of its routes."""
        below = path.removeprefix(PREFIX)
        return {method for route in self.state.routes if route.path_regex.match(below) for method in route.methods}

    def openapi(self) -> dict[str, Any]:
        """Adds the shapes that pydantic does not know of, and says which media type problems have."""
        if self.openapi_schema is None:
            document = super().openapi()
            document["components"]["schemas"] |= COMPONENTS
            for operations in document["paths"].values():
                for operation in operations.values():
                    problem = operation["responses"]["default"]["content"]
                    problem[PROBLEM_JSON] = problem.pop("application/json")
                    # The framework's own refusals are told as problems, too.
                    operation["responses"].pop("422", None)
            self.openapi_schema = document
        return self.openapi_schema


def make_api(
    engine: Engine, database: Database, options: ApiOptions | None = None, feed: Feed | None = None
) -> FastAPI:
    """The application. Call `close_polls` on it when the server is to stop."""
    options = options or ApiOptions()
    app = Rota(
        title="Rota",
        version=__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_name_operation,
    )
    access = Access(options.access, database)
    app.state.api = Api(engine, database, options, Identities(database), Polls(), access, AuditLog(database), feed)
    install_handlers(app)
    router = _collect_routes()
    app.state.routes = [require_need(route) for part in (*PARTS, pages) for route in part.router.routes]
    app.include_router(router, prefix=PREFIX)
    # The older systems' clients know no prefix.
    app.include_router(router, include_in_schema=False)
    app.include_router(pages.router)
    app.router.middleware_stack = Dispatcher(app.router, iter_route_contexts(app.routes))
    return app


def close_polls(app: FastAPI) -> None:
    """Answers every long poll at once, so that the server can stop."""
    app.state.api.polls.close()


def _collect_routes() -> APIRouter:
    router = APIRouter(
        responses={"default": {"model": Problem, "description": "Why it was not done.", "content": {PROBLEM_JSON: {}}}}
    )
    for part in PARTS:
        router.include_router(part.router)
    return router


def require_need(route: BaseRoute) -> BaseRoute:
    """The route, which checks its callers. Raises TypeError for one that would let everybody in."""
    if not isinstance(route, LimitedRoute | SocketRoute):
        raise TypeError(f"{route} does not check who calls it: give its router route_class=LimitedRoute")
    return route


def _name_operation(route: APIRoute) -> str:
    return f"{route.name}_of_{route.path.rsplit('/', 1)[-1]}" if route.name == "list_job_runs" else route.name
