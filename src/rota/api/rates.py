"""How often one key and one address may ask."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass

from rota.domain.errors import TooManyRequests
from rota.engine.core import Memory

REMEMBERED = 10_000
# As many seconds' worth may come at once.
BURST_SECONDS = 2.0


@dataclass(slots=True)
class _Bucket:
    """What is left, as of a moment."""

    tokens: float
    at: float


class RateLimit:
    """A bucket for each name: `rate` flows in each second, and `burst` fits. The least used are forgotten."""

    def __init__(self, rate: float, burst: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(1.0, rate * BURST_SECONDS) if burst is None else burst
        self._clock = clock
        self._buckets: Memory[str, _Bucket] = Memory(REMEMBERED)

    def check(self, name: str, *, cost: float = 1.0) -> None:
        """Takes one request's worth, or only looks. Raises TooManyRequests, which says when to come back."""
        if self._rate <= 0:
            return
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = _Bucket(self._burst, now)
            self._buckets.put(name, bucket)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.tokens < 1:
            wait = (1 - bucket.tokens) / self._rate
            raise TooManyRequests(
                f"too many requests: {self._rate:g} a second are allowed here", retry_after_seconds=wait
            )
        bucket.tokens -= cost


def name_address(host: str) -> str:
    """One name for all addresses that one caller may choose from."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))
