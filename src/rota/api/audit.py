"""The audit log: every change that a caller made through the API, noted by the route itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from fastapi import Request, Response

from rota.api.access import get_caller, get_required_namespace
from rota.domain.access import Permission
from rota.domain.errors import RotaError
from rota.engine.gather import Gatherer
from rota.store import audit
from rota.store.audit import Entry
from rota.store.database import Database

log = structlog.get_logger(__name__)
# Who may do these changes something. Workers are heard of in the history instead.
CHANGING = frozenset({Permission.OPERATE, Permission.EDIT, Permission.ADMINISTER})


class _Created(msgspec.Struct):
    """What an answer says of the thing that it is about."""

    id: str = ""


_read_created = msgspec.json.Decoder(_Created).decode


class AuditLog:
    """Writes entries, those of the same moment in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._entries: Gatherer[Entry, None] = Gatherer(self._write, most=500)

    async def note(self, entry: Entry) -> None:
        """Returns when the entry is committed. What it tells of has been done, so nothing is raised."""
        try:
            await self._entries.call(entry)
        except RotaError as error:
            log.error("audit_entry_lost", reason=error.detail, **entry._asdict())

    async def note_sign_in(self, request: Request) -> None:
        """A browser has a session from now on. Anybody may ask for one, so the route itself notes nothing."""
        caller = get_caller()
        await self.note(Entry("", caller.name, caller.kind, _read_address(request), "sign_in", "session", caller.name))

    async def _write(self, entries: Sequence[Entry]) -> Sequence[None]:
        await self._database.transact(lambda tx: audit.insert_entries(tx, entries))
        return [None] * len(entries)


def describe_change(request: Request, response: Response, action: str) -> Entry:
    """The entry for a change that was answered with `response`."""
    caller = get_caller()
    kind = request.scope["route"].path.removeprefix("/api/v1").split("/")[1]
    entity = _find_entity(request, response)
    return Entry(get_required_namespace(), caller.name, caller.kind, _read_address(request), action, kind, entity)


def _read_address(request: Request) -> str:
    return request.client.host if request.client else ""


def _find_entity(request: Request, response: Response) -> str:
    """What the address names, or else what was made."""
    named: dict[str, Any] = request.path_params
    if named:
        return "/".join(map(str, named.values()))
    try:
        return _read_created(response.body).id
    except (msgspec.DecodeError, AttributeError):
        return ""
