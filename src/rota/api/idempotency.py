"""Requests that may be repeated: the same key and body are served once, and answered alike every time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request, Response

from rota.api.answers import JSON
from rota.api.context import Api, Context, Namespace
from rota.domain.errors import Conflict, FieldError, InvalidInput, RotaError
from rota.store import idempotency
from rota.store.database import OUTCOME_UNKNOWN
from rota.store.idempotency import Kept

# Headers that belong to the answer.
KEPT_HEADERS = ("location", "etag")
# A second request with the same key waits so long for the first one.
WAIT_SECONDS = 5.0
LOOK_SECONDS = 0.05
_PRINTABLE = r"^[!-~]+$"

KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=_PRINTABLE,
        description="Makes it safe to repeat the request: for a day, the same key and body are answered alike.",
    ),
]


@dataclass(frozen=True, slots=True)
class Once:
    """Serves a request unless its key says that it has been served."""

    api: Api
    namespace: str
    key: str | None
    request_hash: str

    async def __call__(self, serve: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of `serve`, now or earlier."""
        if self.key is None:
            return await serve()
        key = self.key
        known = await self.api.database.transact(
            lambda tx: idempotency.take(tx, self.namespace, key, self.request_hash)
        )
        if known is not None:
            return await self._answer_again(key, known)
        try:
            response = await serve()
        except RotaError as error:
            # Nothing was done, so the next one may try.
            if error.code != OUTCOME_UNKNOWN:
                await self.api.database.transact(lambda tx: idempotency.drop(tx, self.namespace, key))
            raise
        await self._keep(key, response)
        return response

    async def _keep(self, key: str, response: Response) -> None:
        headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        kept = {"body": bytes(response.body).decode(), "headers": headers}
        await self.api.database.transact(
            lambda tx: idempotency.keep(tx, self.namespace, key, status=response.status_code, answer=kept)
        )

    async def _answer_again(self, key: str, known: Kept) -> Response:
        if known.request_hash != self.request_hash:
            reason = "was used for another request before: send the same body as then, or choose another key"
            raise InvalidInput.of([FieldError("Idempotency-Key", reason)])
        give_up_at = asyncio.get_running_loop().time() + WAIT_SECONDS
        while known.status is None and asyncio.get_running_loop().time() < give_up_at:
            await asyncio.sleep(LOOK_SECONDS)
            found = await self.api.database.read(lambda tx: idempotency.find(tx, self.namespace, key))
            if found is None:
                break
            known = found
        if known.status is None or known.answer is None:
            raise Conflict(
                "a request with this Idempotency-Key is being served, or was cut off: repeat it later, and if that "
                "does not help look whether it was done before you choose another key",
                code="request_unfinished",
            )
        headers = {**known.answer["headers"], "Idempotency-Replayed": "true"}
        return Response(known.answer["body"].encode(), known.status, headers, JSON)


async def provide_once(request: Request, api: Context, namespace: Namespace, key: KeyHeader = None) -> Once:
    if key is None:
        return Once(api, namespace, None, "")
    # Everything is found at two addresses, which are one and the same.
    address = request.url.path.removeprefix("/api/v1")
    told = f"{request.method} {address}\n".encode() + await request.body()
    return Once(api, namespace, key, hashlib.sha256(told).hexdigest())


OnlyOnce = Annotated[Once, Depends(provide_once)]
