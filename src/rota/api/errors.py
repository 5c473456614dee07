"""The one table from errors to HTTP, and the problem JSON (RFC 9457) that tells them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

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

log = structlog.get_logger(__name__)

STATUSES: Mapping[type[RotaError], int] = {
    InvalidInput: 422,
    NotFound: 404,
    Conflict: 409,
    StaleVersion: 412,
    Unauthenticated: 401,
    Forbidden: 403,
    TooLarge: 413,
    TooManyRequests: 429,
    CapacityExceeded: 507,
    Unavailable: 503,
}
# When to come back, where the error itself does not say.
RETRY_AFTER_SECONDS: Mapping[type[RotaError], float] = {CapacityExceeded: 30, Unavailable: 1}
PROBLEM_JSON = "application/problem+json"
NOT_JSON = "the body was not read as JSON: send it with Content-Type: application/json"


def describe(error: RotaError, *, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that tells this error."""
    status = status or find_status(error)
    problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": error.code,
        "detail": error.detail,
        "errors": [{"field": fault.field, "reason": fault.reason} for fault in error.errors],
    }
    return Response(msgspec.json.encode(problem), status, {**_retry_header(error), **(headers or {})}, PROBLEM_JSON)


def find_status(error: RotaError) -> int:
    return next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)


def _retry_header(error: RotaError) -> dict[str, str]:
    seconds = getattr(error, "retry_after_seconds", None) or RETRY_AFTER_SECONDS.get(type(error))
    headers = {} if seconds is None else {"Retry-After": str(math.ceil(seconds))}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def read_validation(faults: Sequence[Any], *, path: str = "") -> InvalidInput:
    """What pydantic refused, in our words."""
    return InvalidInput.of([_read_fault(fault, path) for fault in faults])


def _read_fault(fault: Mapping[str, Any], path: str) -> FieldError:
    places = [str(place) if isinstance(place, str) else f"[{place}]" for place in fault["loc"]]
    if places and places[0] in ("body", "query", "path", "header"):
        places = places[1:]
    field = ".".join(([path] if path else []) + places).replace(".[", "[") or "body"
    if fault["type"] == "json_invalid":
        return FieldError("body", f"is not valid JSON: {fault['ctx']['error']}")
    if isinstance(fault.get("input"), bytes):
        return FieldError("body", NOT_JSON)
    if fault["type"] == "extra_forbidden":
        return FieldError(field, "there is no such field")
    if fault["type"] == "missing":
        return FieldError(field, "is required")
    message = str(fault["msg"])
    return FieldError(field, message[:1].lower() + message[1:])


async def _tell_rota_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RotaError):
        raise error
    return describe(error)


async def _tell_validation(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return describe(read_validation(error.errors()))


async def _tell_http(request: Request, error: Exception) -> Response:
    """Errors of the framework: unknown paths and methods, and bodies that could not be read."""
    if not isinstance(error, HTTPException):
        raise error
    if isinstance(error.__cause__, RotaError):
        return describe(error.__cause__)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return describe(NotFound(f"there is nothing at {request.url.path}"))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted(request.app.find_methods(request.url.path)))
        refusal = InvalidInput(f"{request.method} is not possible here; allowed: {allowed}")
        return describe(refusal, status=error.status_code, headers={"Allow": allowed})
    return describe(InvalidInput(str(error.detail)), status=error.status_code, headers=error.headers)


async def _tell_nobody(_request: Request, _error: Exception) -> Response:
    """The caller hung up in the middle of its request: there is nobody to answer, and nothing went wrong here."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _tell_unexpected(request: Request, error: Exception) -> Response:
    """A fault of ours: the caller learns only that there was one, the log has the rest."""
    log.error("request_failed", method=request.method, path=request.url.path, exc_info=error)
    return describe(RotaError("something went wrong here; the server's log says what"))


def install_handlers(app: FastAPI) -> None:
    """Every error of every endpoint is told as problem JSON."""
    app.add_exception_handler(RotaError, _tell_rota_error)
    app.add_exception_handler(RequestValidationError, _tell_validation)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_exception_handler(ClientDisconnect, _tell_nobody)
    app.add_exception_handler(Exception, _tell_unexpected)


def to_invalid_input(error: ValidationError) -> InvalidInput:
    """What a model of ours refused outside of the framework."""
    return read_validation(error.errors())
