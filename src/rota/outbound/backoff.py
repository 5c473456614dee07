"""Waiting longer after each failure in a row, but never in step with others."""

from __future__ import annotations

import random

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0


class Backoff:
    """1, 2, 4 … 30 seconds, each shortened at random by up to a half."""

    def __init__(self) -> None:
        self.failures = 0

    def next_seconds(self) -> float:
        seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return seconds * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self.failures = 0
