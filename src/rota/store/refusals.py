"""What the databases say when they refuse, and what it means."""

from __future__ import annotations

from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# What a server answers that led until now, or will only do so when it is promoted: it cannot write.
_READ_ONLY = "25006"
# Serialization failure, deadlock, lock not available; and what a server that stops or fails over answers:
# shutting down, starting up, too many connections, read-only.
_TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300", _READ_ONLY})


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may well succeed when it is tried again."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OSError | PoolTimeout)
    state = _read_state(error.orig)
    if state in _TRANSIENT_STATES or state.startswith("08") or error.connection_invalidated:
        return True
    return "database is locked" in str(error.orig) or "connection is closed" in str(error.orig)


def is_passing(refusal: Exception) -> bool:
    """Whether a server that refused a connection may well take one later, or another server instead."""
    state = _read_state(refusal)
    return state in _TRANSIENT_STATES or state.startswith("08") or not state


def is_read_only(error: DBAPIError) -> bool:
    """Whether this connection leads to a server that does not lead (any more)."""
    return _read_state(error.orig) == _READ_ONLY


def _read_state(refusal: BaseException | None) -> str:
    """The SQLSTATE, or nothing where the server did not come to answer."""
    return str(getattr(refusal, "sqlstate", None) or getattr(refusal, "pgcode", None) or "")


_UNUSABLE = ("readonly", "malformed", "not a database", "unable to open", "disk I/O", "disk is full")


def is_unusable(error: DBAPIError) -> bool:
    """Whether the file itself is at fault, and somebody has to look after it."""
    return any(words in str(error.orig) for words in _UNUSABLE)


def explain_refusal(error: DBAPIError, url: str) -> str:
    """A sentence for a database that cannot be used at all."""
    refusal = str(error.orig)
    path = make_url(url).database
    if "not a database" in refusal or "malformed" in refusal:
        return f"{path} is damaged or not a SQLite database ({refusal}); restore it from a backup, or name another file"
    if "readonly" in refusal:
        return f"{path} is read-only; give this user the right to write it and its folder"
    if "unable to open" in refusal:
        return f"{path} cannot be opened; make sure that its folder exists and that this user may write there"
    if "disk" in refusal:
        return f"{path} cannot be written ({refusal}); make room on its disk, or name another file"
    return f"the database refused: {refusal}"
