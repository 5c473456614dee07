"""When a failed try is tried again, and how long to wait before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rota.domain.work import ErrorType

Backoff = Literal["exponential", "fixed"]

# A server's Retry-After is a wish; beyond a day it is a mistake or an attack.
MAX_RETRY_AFTER_SECONDS = 86_400.0
# 2 ** 60 seconds exceeds any cap: larger exponents would only overflow.
_MAX_DOUBLINGS = 60

# Never the task's own failure: a cancel is a wish, and lost workers have their own budget (`max_deliveries`).
NEVER_RETRIED = frozenset({ErrorType.CANCELLED, ErrorType.POISON, ErrorType.WORKER_LOST})
# Trying again cannot help, unless `retry_on` names it.
_RETRIED_IF_NAMED = frozenset({ErrorType.BAD_TASK, ErrorType.REJECTED, ErrorType.RUN_CANCELLED})
_HTTP_GONE = 410


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The user's retries of one task. `retry_on` holds exit codes or HTTP statuses (integers), status classes
    (`5xx`) and error types; empty means any failure that another try could mend."""

    retry_count: int = 0
    retry_delay_seconds: float = 1.0
    retry_backoff: Backoff = "exponential"
    retry_max_delay_seconds: float = 3600.0
    retry_jitter: bool = False
    retry_on: tuple[int | str, ...] = ()

    def delay_before(
        self, try_number: int, *, retry_after_seconds: float | None = None, randomness: float = 1.0
    ) -> float:
        """Seconds between the end of a try and the start of try `try_number` (2 is the first retry).

        `randomness` (0..1) spreads the wait over 0..delay when `retry_jitter` is set. A server's Retry-After
        is the least there is to wait, up to a day, whatever the policy's own cap.
        """
        if try_number < 2:
            return 0.0
        delay = self.retry_delay_seconds
        if self.retry_backoff == "exponential":
            delay *= 2.0 ** min(try_number - 2, _MAX_DOUBLINGS)
        delay = min(delay, self.retry_max_delay_seconds)
        if self.retry_jitter:
            delay *= min(max(randomness, 0.0), 1.0)
        # Written so that NaN and negative values lose the comparison.
        if retry_after_seconds is not None and retry_after_seconds > delay:
            return max(delay, min(retry_after_seconds, MAX_RETRY_AFTER_SECONDS))
        return delay


def decide_retry(
    policy: RetryPolicy,
    *,
    tries_used: int,
    error_type: str | None = None,
    exit_code: int | None = None,
    http_status: int | None = None,
) -> bool:
    """Whether a task that has failed after `tries_used` tries gets another one."""
    if tries_used > policy.retry_count or error_type in NEVER_RETRIED:
        return False
    if policy.retry_on:
        return any(_matches(item, error_type, exit_code, http_status) for item in policy.retry_on)
    return error_type not in _RETRIED_IF_NAMED and http_status != _HTTP_GONE


def _matches(item: int | str, error_type: str | None, exit_code: int | None, http_status: int | None) -> bool:
    if isinstance(item, int):
        return item in (exit_code, http_status)
    if http_status is not None and item == f"{http_status // 100}xx":
        return True
    return item == error_type
