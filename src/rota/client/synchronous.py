"""The client for plain code: the other one, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rota.client.asynchronous import LOCAL, AsyncClient, LiveEvent

T = TypeVar("T")


class Client:
    """The same calls as `AsyncClient`, each of which waits for its answer. Use it as `with`, or `close` it."""

    def __init__(
        self,
        servers: str | Sequence[str] = LOCAL,
        *,
        token: str = "",
        namespace: str = "default",
        timeout_seconds: float = 60.0,
        retries: int = 5,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rota-client", daemon=True)
        self._thread.start()
        self._client = AsyncClient(
            servers, token=token, namespace=namespace, timeout_seconds=timeout_seconds, retries=retries
        )
        self._run(self._client.__aenter__())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives connections and thread back."""
        if self._loop.is_closed():
            return
        self._run(self._client.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """One call below /api/v1; its JSON. A POST is repeated only with a key, which makes that safe."""
        return self._run(self._client.request(method, path, query=query, body=body, idempotency_key=idempotency_key))

    def iterate(self, path: str, **query: object) -> Iterator[dict[str, Any]]:
        """All items of a list, page by page."""
        return self._iterate(self._client.iterate(path, **query))

    def apply(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Makes the workflow be as the definition says."""
        return self._run(self._client.apply(definition))

    def trigger(
        self, workflow: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Starts a run, once, however often the call had to be repeated."""
        return self._run(self._client.trigger(workflow, params, idempotency_key=idempotency_key))

    def submit_job(self, *, idempotency_key: str | None = None, **fields: Any) -> dict[str, Any]:
        """Creates a job: `command="make report"`, `webhook_url=…`, `schedule=…`."""
        return self._run(self._client.submit_job(idempotency_key=idempotency_key, **fields))

    def read_run(self, run_id: str) -> dict[str, Any]:
        """A run with its task runs."""
        return self._run(self._client.read_run(run_id))

    def list_runs(
        self, *, workflow: str | None = None, status: str | Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Runs, the newest first, all pages of them."""
        return self._iterate(self._client.list_runs(workflow=workflow, status=status))

    def cancel_run(self, run_id: str, reason: str = "") -> dict[str, Any]:
        return self._run(self._client.cancel_run(run_id, reason))

    def wait(self, run_id: str) -> dict[str, Any]:
        """The run, as soon as it has ended."""
        return self._run(self._client.wait(run_id))

    def watch(
        self,
        *,
        types: Sequence[str] = (),
        workflow: str | None = None,
        run: str | None = None,
        since: int | None = None,
    ) -> Iterator[LiveEvent]:
        """What happens, without an end; after a lost connection it goes on where it was."""
        return self._iterate(self._client.watch(types=types, workflow=workflow, run=run, since=since))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Interrupted by Ctrl-C, it must not go on unseen.
            future.cancel()
            raise

    def _iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            while True:
                try:
                    item = self._run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if not self._loop.is_closed():
                self._run(items.aclose())


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)
