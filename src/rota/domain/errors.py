"""Every error Rota raises on purpose: a stable code, a sentence, and the fields at fault.

RotaError
├── InvalidInput       what was sent cannot be accepted; `errors` names the fields
├── NotFound           no such thing (or not visible from here)
├── Conflict           the thing is not in a state that allows this
├── StaleVersion       the thing was changed by someone else meanwhile
├── Unauthenticated    who are you?
├── Forbidden          you may not
├── TooLarge           the payload is over its limit
├── TooManyRequests    over a rate or backlog limit; `retry_after_seconds` says when to come back
├── CapacityExceeded   the queue is full
└── Unavailable        the database (or another server that is needed) cannot be used now
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# The code of a Conflict: who tries to do what only the leader may is not the leader (any more).
NOT_LEADER = "not_leader"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field at fault: where it is (`tasks[2].depends_on`) and what to send instead."""

    field: str
    reason: str


class RotaError(Exception):
    """Base of all deliberate errors. `code` is stable and documented; `detail` is for people."""

    code = "error"

    def __init__(self, detail: str, *, code: str | None = None, errors: Iterable[FieldError] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.errors = tuple(errors)


class InvalidInput(RotaError):
    code = "invalid_input"

    @classmethod
    def of(cls, errors: Iterable[FieldError]) -> InvalidInput:
        """The error for a list of faulty fields; the first one also becomes the sentence."""
        found = tuple(errors)
        first = f"{found[0].field}: {found[0].reason}" if found else "the input is not valid"
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return cls(first + more, errors=found)


class NotFound(RotaError):
    code = "not_found"


class Conflict(RotaError):
    code = "conflict"


class StaleVersion(RotaError):
    code = "stale_version"


class Unauthenticated(RotaError):
    code = "unauthenticated"


class Forbidden(RotaError):
    code = "forbidden"


class TooLarge(RotaError):
    code = "too_large"


class TooManyRequests(RotaError):
    code = "too_many_requests"

    def __init__(self, detail: str, *, retry_after_seconds: float = 1.0, code: str | None = None) -> None:
        super().__init__(detail, code=code)
        self.retry_after_seconds = retry_after_seconds


class CapacityExceeded(RotaError):
    code = "capacity_exceeded"


class Unavailable(RotaError):
    code = "unavailable"
