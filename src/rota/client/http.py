"""A small synchronous client of the HTTP API. What the server refuses is raised as the error that it was there."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from rota.domain.errors import (
    CapacityExceeded,
    Conflict,
    FieldError,
    Forbidden,
    InvalidInput,
    NotFound,
    RotaError,
    StaleVersion,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)

API = "/api/v1"
CONNECT_SECONDS = 5.0
UNREACHABLE = "server_unreachable"

_BY_STATUS: Mapping[int, type[RotaError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: StaleVersion,
    413: TooLarge,
    422: InvalidInput,
    429: TooManyRequests,
    503: Unavailable,
    507: CapacityExceeded,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said."""

    status: int
    content_type: str
    body: bytes

    def read_json(self) -> Any:
        """The body, which must be JSON."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise RotaError(
                f"the server did not answer with JSON ({self.content_type}): is it a Rota server?"
            ) from error


class Client:
    """Sends requests to the first of its servers that can be reached."""

    def __init__(self, servers: Sequence[str], *, token: str = "", timeout_seconds: float = 60.0) -> None:
        self._servers = tuple(servers)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        return self._send("GET", path, query=query).read_json()

    def get_bytes(self, path: str, query: Mapping[str, object] | None = None) -> bytes:
        """The body as it is, such as a log."""
        return self._send("GET", path, query=query).body

    def post(self, path: str, body: object = None) -> Any:
        return self._send("POST", path, body={} if body is None else body).read_json()

    def put(self, path: str, body: object) -> Any:
        return self._send("PUT", path, body=body).read_json()

    def patch(self, path: str, body: object) -> Any:
        return self._send("PATCH", path, body=body).read_json()

    def delete(self, path: str) -> Any:
        return self._send("DELETE", path).read_json()

    def _send(
        self, method: str, path: str, *, query: Mapping[str, object] | None = None, body: object = None
    ) -> Answer:
        answer = asyncio.run(self._try_servers(method, API + path, write_query(query or {}), body))
        if answer.status >= 400:
            raise read_problem(answer)
        return answer

    async def _try_servers(self, method: str, path: str, query: Sequence[tuple[str, str]], body: object) -> Answer:
        reasons = []
        async with aiohttp.ClientSession(timeout=self._timeout, headers=self._headers) as session:
            for server in self._servers:
                try:
                    async with session.request(method, server + path, params=query, json=body) as response:
                        return Answer(response.status, response.content_type, await response.read())
                except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError) as error:
                    # Not reached, or gone before it answered a request that may be repeated: the next one is asked.
                    reasons.append(f"{server}: {explain(error)}")
                    if method != "GET" and not isinstance(error, aiohttp.ClientConnectorError):
                        break
                except (aiohttp.ClientError, TimeoutError) as error:
                    reasons.append(f"{server}: {explain(error)}")
                    break
        raise Unavailable(
            f"no Rota server answers ({'; '.join(reasons)}); start one with `rota up`, or name it with --server",
            code=UNREACHABLE,
        )


def write_query(query: Mapping[str, object]) -> list[tuple[str, str]]:
    """Query parameters; lists repeat their name, None is left out."""
    pairs = []
    for name, value in query.items():
        values = value if isinstance(value, list | tuple) else [value]
        pairs += [
            (name, str(item).lower() if isinstance(item, bool) else str(item)) for item in values if item is not None
        ]
    return pairs


def explain(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return os.strerror(number) if number and number > 0 else str(error.os_error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


def read_problem(answer: Answer) -> RotaError:
    """The error that the server's problem JSON describes."""
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = {}
    if not isinstance(problem, dict):
        problem = {}
    kind = _BY_STATUS.get(answer.status, RotaError)
    detail = str(problem.get("detail") or f"the server answered {answer.status}")
    code = str(problem.get("code") or kind.code)
    if issubclass(kind, TooManyRequests):
        return kind(detail, code=code)
    faults = [
        FieldError(str(fault.get("field", "")), str(fault.get("reason", "")))
        for fault in problem.get("errors") or ()
        if isinstance(fault, dict)
    ]
    return kind(detail, code=code, errors=faults)
