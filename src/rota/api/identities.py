"""Which worker is calling: by its token, or, for older workers, by its id or label alone."""

from __future__ import annotations

from collections import OrderedDict

from fastapi import Request

from rota.domain.errors import Unauthenticated
from rota.domain.ids import is_uuid
from rota.domain.work import WorkerIdentity
from rota.store.database import Database
from rota.store.reads import workers

TOKEN_HEADER = "x-rota-incarnation"  # noqa: S105 - the name of a header
REMEMBERED = 10_000


class Identities:
    """Resolves callers, and remembers those that have shown their token."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[tuple[str, str], WorkerIdentity] = OrderedDict()

    async def identify(self, request: Request, name: str, token: str | None = None) -> WorkerIdentity:
        """The worker that `name` (its id or its label) and its token, given or in a header, stand for."""
        token = token or read_token(request)
        if token is None:
            return await self._find_active(name)
        known = self._known.get((name, token))
        if known is None:
            known = await self._verify(name, token)
            self._known[name, token] = known
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def _verify(self, name: str, token: str) -> WorkerIdentity:
        found = await self._database.read(lambda tx: workers.find_incarnation(tx, token))
        if found is None or name not in (found.id, found.name):
            raise Unauthenticated("this worker is not known by this token: register again", code="unknown_worker")
        return WorkerIdentity(found.id, token)

    async def _find_active(self, name: str) -> WorkerIdentity:
        """Older workers send no token: the id that registering gave them, or their label, must do."""
        found = await self._database.read(
            lambda tx: workers.find_active(tx, worker_id=name.lower() if is_uuid(name) else None, name=name)
        )
        if found is None:
            raise Unauthenticated(
                "no active worker has this id: register (again), and send the token that you get", code="unknown_worker"
            )
        return WorkerIdentity(found.id, found.incarnation)


def read_token(request: Request) -> str | None:
    """The incarnation token of a request; it may come in either header."""
    token = request.headers.get(TOKEN_HEADER)
    if token is None:
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        # Incarnations are UUIDs; what else stands here is the key of who runs the worker.
        token = rest.strip() if scheme.lower() == "bearer" and is_uuid(rest.strip()) else None
    return token or None
