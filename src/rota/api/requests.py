"""Reading requests: bodies have a limit, and JSON is strict."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from rota.api.access import SAFE_METHODS
from rota.api.audit import CHANGING, describe_change
from rota.api.context import get_api
from rota.api.permissions import find_need
from rota.domain.errors import FieldError, InvalidInput, TooLarge


class LimitedRequest(Request):
    """A request whose body is refused as soon as it is known to be too large."""

    def __init__(self, request: Request, limit_bytes: int) -> None:
        super().__init__(request.scope, request.receive)
        self._limit_bytes = limit_bytes

    async def stream(self) -> AsyncGenerator[bytes, None]:
        announced = self.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._limit_bytes:
            raise self._refusal()
        received = 0
        async for part in super().stream():
            received += len(part)
            if received > self._limit_bytes:
                raise self._refusal()
            yield part

    async def json(self) -> Any:
        """The body; raises what the framework expects of a body that is no JSON."""
        try:
            return decode_json(await self.body())
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from error

    def _refusal(self) -> TooLarge:
        return TooLarge(f"the body is larger than the {self._limit_bytes:,} bytes that are allowed here")


def decode_json(body: bytes) -> Any:
    """JSON in UTF-8 without lone surrogates, NaN or endless nesting. Raises ValueError."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


async def read_json(request: Request) -> Any:
    """The body of a request, for endpoints that read it themselves. Raises InvalidInput."""
    try:
        return decode_json(await request.body())
    except ValueError as error:
        raise InvalidInput.of([FieldError("body", f"is not valid JSON: {error}")]) from error


def _refuse_nul(request: Request) -> None:
    """No database keeps NUL in a text, so nothing can be found by one."""
    if "\0" in request.url.path or b"%00" in request.scope["query_string"]:
        raise InvalidInput("the address must not contain a NUL character")


class LimitedRoute(APIRoute):
    """A route that says who may call it, and takes bodies up to the API's general limit."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.need = find_need(endpoint)
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        is_changing = self.need.permission in CHANGING

        async def handle_limited(request: Request) -> Response:
            api = get_api(request)
            await api.access.admit(request, self.need)
            _refuse_nul(request)
            response = await handle(LimitedRequest(request, self.find_limit(request)))
            if is_changing and request.method not in SAFE_METHODS and response.status_code < HTTPStatus.BAD_REQUEST:
                await api.audit.note(describe_change(request, response, self.name))
            return response

        return handle_limited

    def find_limit(self, request: Request) -> int:
        return get_api(request).options.max_body_bytes


class WorkerRoute(LimitedRoute):
    """A route that takes what workers report."""

    def find_limit(self, request: Request) -> int:
        return get_api(request).options.max_events_bytes
