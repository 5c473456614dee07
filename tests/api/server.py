"""A real server on loopback inside the test's own loop, and a client that holds every answer against the document."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import uvicorn
from fastapi import FastAPI

from rota.api.app import PREFIX, close_polls, make_api
from rota.api.options import ApiOptions
from rota.app.connections import StreamingHttp, StreamingWebSocket
from rota.domain.access import Role
from rota.domain.api_key import NewKey
from rota.domain.work import Assignment, Finished, Registration, WorkerIdentity
from rota.engine.core import EngineOptions
from rota.engine.engine import Engine
from rota.engine.vault import Vault
from rota.events.hub import Hub
from rota.store.database import Database, DatabaseOptions

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "openapi.json"


class Document:
    """The OpenAPI document, as a judge of answers."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._components = {"components": document["components"]}
        self._operations = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + "$"), path.count("{"), method.upper(), operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        ]
        self._operations.sort(key=lambda entry: entry[1])

    def check(self, method: str, path: str, answer: Answer) -> None:
        """Fails when an answer is not as the document promises."""
        path = path if path.startswith(PREFIX) else PREFIX + path
        found = [entry[3] for entry in self._operations if entry[2] == method and entry[0].match(path)]
        if not found:
            return
        responses = found[0]["responses"]
        promised = responses.get(str(answer.status))
        if promised is None:
            assert answer.status >= 400, f"{method} {path}: status {answer.status} is not in the document"
            promised = responses["default"]
            assert answer.headers["Content-Type"] == "application/problem+json"
        media = answer.headers.get("Content-Type", "").split(";")[0]
        schema = promised.get("content", {}).get(media, {}).get("schema")
        if schema is not None:
            jsonschema_rs.Draft202012Validator({**schema, **self._components}).validate(answer.json)


@functools.cache
def read_document() -> Document:
    """The document as it is committed."""
    return Document(json.loads(DOCUMENT.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass
class Server:
    """The server, what is behind it, and a client in front of it."""

    url: str
    app: FastAPI
    engine: Engine
    database: Database
    session: aiohttp.ClientSession
    document: Document
    hub: Hub
    prefix: str = PREFIX
    _worker: WorkerIdentity | None = field(default=None, init=False)

    async def call(
        self, method: str, path: str, body: Any = None, *, data: bytes | None = None, **headers: str
    ) -> Answer:
        """One request; `body` is sent as JSON, `data` as it is. Header names are written with underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent.setdefault("content-type", "application/json")
        async with self.session.request(method, self.url + self.prefix + path, data=data, headers=sent) as response:
            answer = Answer(response.status, response.headers, await response.read())
        self.document.check(method, response.url.raw_path, answer)
        return answer

    async def get(self, path: str) -> Any:
        answer = await self.call("GET", path)
        assert answer.status == 200, answer
        return answer.json

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = await self.call("POST", path, body)
        assert answer.status == status, answer
        return answer.json

    async def define(self, *tasks: dict[str, Any], name: str = "flow", **fields: Any) -> Any:
        """Saves a workflow; every task is a `true` unless it says otherwise."""
        items = [{"command": "true", **task} for task in tasks]
        return await self.post("/workflows", {"name": name, "tasks": items, **fields}, status=201)

    async def trigger(self, name: str = "flow", **body: Any) -> Any:
        return await self.post(f"/workflows/{name}/trigger", body, status=201)

    async def make_key(self, name: str, role: str = "viewer", **fields: Any) -> dict[str, Any]:
        """A new key, as the header that shows it."""
        wanted = NewKey(name, Role(role), **fields)
        created = await self.engine.custody.create_key(wanted, created_by="test")
        # As on any node, what is remembered of keys is short-lived; here it ends now.
        self.app.state.api.access.keys.forget()
        return {"authorization": f"Bearer {created.key}"}

    # A worker without processes, straight at the engine.

    async def join(self) -> WorkerIdentity:
        if self._worker is None:
            registered = await self.engine.register(Registration(name="hand", kinds=("shell", "http"), concurrency=100))
            self._worker = registered.identity
        return self._worker

    async def take(self, limit: int = 1) -> list[Assignment]:
        return list(await self.engine.claim(await self.join(), limit=limit))

    async def finish(self, assignment: Assignment, status: str = "success", **fields: Any) -> None:
        end = Finished(assignment.task_run_id, assignment.attempt, status, **fields)
        reply = await self.engine.report(await self.join(), [end])
        assert reply.results[0].is_accepted, reply

    async def work(self, status: str = "success", **fields: Any) -> int:
        """Executes whatever is queued until nothing is; how many attempts that took."""
        count = 0
        while taken := await self.take(100):
            for assignment in taken:
                await self.finish(assignment, status, **fields)
                count += 1
        return count


@asynccontextmanager
async def serve(app: FastAPI) -> AsyncIterator[str]:
    """Serves an application on a free port; its address."""
    # Without the protocol's name asyncio leaves Nagle's algorithm on, which costs 40 ms for each answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        http=StreamingHttp,
        ws=StreamingWebSocket,
        timeout_graceful_shutdown=5,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.started_event.wait()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        close_polls(app)
        server.should_exit = True
        await serving
        listener.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.started_event = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.started_event.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@asynccontextmanager
async def open_server(
    database_url: str,
    options: ApiOptions | None = None,
    engine_options: EngineOptions | None = None,
    vault: Vault | None = None,
) -> AsyncIterator[Server]:
    """A server on this database."""
    database = Database(DatabaseOptions(database_url))
    await database.open()
    engine = Engine(database, engine_options, vault=vault)
    hub = Hub(database)
    app = make_api(engine, database, options, hub)
    relaying = asyncio.create_task(hub.run())
    try:
        async with serve(app) as url, aiohttp.ClientSession() as session:
            yield Server(url, app, engine, database, session, read_document(), hub)
    finally:
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)
        await database.close()
