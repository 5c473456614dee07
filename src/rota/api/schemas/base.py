"""What all shapes have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")


class Body(BaseModel):
    """Something that is sent to us: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Questions(BaseModel):
    """The query of an address that has many parts."""


class Shape(BaseModel):
    """Something that we answer with; filled from rows and plain objects."""

    model_config = ConfigDict(from_attributes=True)


class Page(Shape, Generic[Item]):
    """A part of a list, the newest first."""

    items: list[Item]
    total: int | None = Field(
        description="How many there are in all; null when there are too many to count, and on pages by cursor."
    )
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null on the last one.")


class FieldFault(Shape):
    """A field that is at fault, and what to send instead."""

    field: str
    reason: str


class Problem(Shape):
    """Why a request was not served (RFC 9457); `code` is stable, `detail` is for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldFault]
