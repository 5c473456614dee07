"""The worker's standing with its source: registered, leases renewed, orders heard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import structlog

from rota.domain.errors import RotaError, Unauthenticated
from rota.domain.work import AttemptKey, Registered, Registration, RenewReply, WorkerIdentity, WorkSource
from rota.outbound.backoff import Backoff

log = structlog.get_logger(__name__)

ORDERS_WAIT_SECONDS = 20.0


def read_clock() -> float:
    """Seconds that also pass while the machine sleeps: leases do not stop for us."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Session:
    """Holds the identity, and knows whether the leases can still be relied upon."""

    def __init__(
        self,
        source: WorkSource,
        registration: Registration,
        *,
        list_held: Callable[[], Sequence[AttemptKey]],
        on_orders: Callable[[RenewReply], None],
    ) -> None:
        self._source = source
        self._registration = registration
        self._list_held = list_held
        self._on_orders = on_orders
        self._clock = read_clock
        self._registered: Registered | None = None
        self._renewed_at = 0.0
        self._lock = asyncio.Lock()
        self.is_reachable = False

    @property
    def identity(self) -> WorkerIdentity:
        if self._registered is None:
            raise Unauthenticated("the worker is not registered yet")
        return self._registered.identity

    @property
    def is_registered(self) -> bool:
        return self._registered is not None

    @property
    def is_fresh(self) -> bool:
        """False when no renewal has got through for a lease's length: others may hold our attempts by now."""
        registered = self._registered
        return registered is not None and self._clock() - self._renewed_at < registered.lease_seconds

    async def register(self) -> None:
        """Registers, trying until it works."""
        backoff = Backoff()
        while not await self.attempt(self._register, backoff):
            pass

    async def _register(self) -> None:
        began_at = self._clock()
        self._registered = await self._source.register(self._registration)
        self._renewed_at = began_at
        self.is_reachable = True
        log.info("registered", worker_id=self._registered.worker_id, name=self._registration.name)

    async def _replace_identity(self, stale: WorkerIdentity) -> None:
        """Registers anew, unless somebody else has done so since `stale` was refused."""
        async with self._lock:
            if self.identity == stale:
                log.warning("identity_refused", worker_id=stale.worker_id)
                await self._register()
        await self.renew()

    async def renew(self) -> None:
        """Renews every lease at once, and passes on what the answer orders."""
        identity = self.identity
        began_at = self._clock()
        reply = await self._source.renew(identity, self._list_held())
        self._renewed_at = began_at
        self.is_reachable = True
        self._on_orders(reply)

    async def ensure_fresh(self) -> None:
        """Called before results are sent: after a pause longer than the lease, first find out what is still ours."""
        if not self.is_fresh:
            await self.renew()

    async def keep_alive(self) -> None:
        """Renews at the interval that the source gave, until cancelled."""
        backoff = Backoff()
        while True:
            registered = self._registered
            await asyncio.sleep(registered.heartbeat_interval_seconds if registered else 1.0)
            while not await self.attempt(self.renew, backoff):
                pass

    async def hear_orders(self) -> None:
        """Renews at once whenever the source says that there are orders, until cancelled."""
        backoff = Backoff()
        while True:
            await self.attempt(self._hear_orders_once, backoff)

    async def _hear_orders_once(self) -> None:
        if await self._source.wait_for_orders(self.identity, wait_seconds=ORDERS_WAIT_SECONDS):
            await self.renew()
        else:
            # A source that answers at once must not keep the loop from everything else.
            await asyncio.sleep(0)

    async def attempt(self, call: Callable[[], Awaitable[object]], backoff: Backoff) -> bool:
        """One turn of a loop; False, after a wait, when it failed and the turn is to be tried again."""
        stale = self._registered.identity if self._registered else None
        try:
            await call()
        except Unauthenticated as error:
            if stale is None or not await self.attempt(lambda: self._replace_identity(stale), backoff):
                log.warning("source_refuses", error=error.detail)
            return False
        except RotaError as error:
            self.is_reachable = False
            seconds = backoff.next_seconds()
            log.warning("source_away", error=error.detail, code=error.code, retry_in_seconds=round(seconds, 1))
        except Exception:
            seconds = backoff.next_seconds()
            log.exception("worker_loop_failed", retry_in_seconds=round(seconds, 1))
        else:
            backoff.reset()
            return True
        await asyncio.sleep(seconds)
        return False
