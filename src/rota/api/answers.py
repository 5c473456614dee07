"""Answers: shapes as JSON, and pages of rows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel

from rota.api.schemas.base import Page
from rota.domain.errors import FieldError, InvalidInput
from rota.domain.ids import is_uuid
from rota.store.reads.pages import Listing, PageRequest

JSON = "application/json"
Item = TypeVar("Item", bound=BaseModel)
MAX_SEQUENCE = 2**62


def answer(shape: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The shape as a response; it has been checked when it was made."""
    return Response(shape.__pydantic_serializer__.to_json(shape), status, headers, JSON)


def answer_page(page: type[Page[Item]], listing: Listing, make: Callable[[Any], Item]) -> Response:
    """A page of rows, each made into a shape."""
    return answer(
        page(
            items=[make(row) for row in listing.rows],
            total=listing.total,
            next_cursor=None if listing.next_after is None else encode_cursor(listing.next_after),
        )
    )


def encode_cursor(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    try:
        after = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        after = ""
    if not is_uuid(after):
        raise InvalidInput.of([FieldError("cursor", "is not one that a list has answered: send it as it was given")])
    return after


def read_sequence(cursor: str | None) -> int:
    """The `seq` before which to go on; without a cursor the end of all."""
    if cursor is None:
        return MAX_SEQUENCE
    if not cursor.isdecimal() or int(cursor) > MAX_SEQUENCE:
        raise InvalidInput.of([FieldError("cursor", "is not one that a list has answered: send it as it was given")])
    return int(cursor)


async def read_page_request(
    limit: Annotated[int, Query(ge=1, le=500)] = 20,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    cursor: Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before.")] = None,
) -> PageRequest:
    return PageRequest(limit, offset, decode_cursor(cursor) if cursor else None)


PageQuery = Annotated[PageRequest, Depends(read_page_request)]


def read_states(values: Sequence[str], states: Sequence[str], read: Callable[[str], str]) -> list[str]:
    """The states that a filter names, synonyms resolved."""
    found = [read(value) for value in values]
    errors = [
        FieldError("status", f"expected one of {', '.join(states)}, not {value[:40]!r}")
        for value, state in zip(values, found, strict=True)
        if state not in states
    ]
    if errors:
        raise InvalidInput.of(errors)
    return found


def read_if_match(request: Request) -> int | None:
    """The version that the caller knows; None where any will do."""
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return None
    number = given.strip().removeprefix("W/").strip('"')
    # What is no version of ours matches none.
    return int(number) if number.isdigit() and len(number) < 10 else -1
