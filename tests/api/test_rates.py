"""Buckets, by a clock that is turned by hand."""

from __future__ import annotations

import pytest

from rota.api.rates import REMEMBERED, RateLimit, name_address
from rota.domain.errors import TooManyRequests


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _count(limit: RateLimit, name: str, tries: int) -> int:
    done = 0
    for _ in range(tries):
        try:
            limit.check(name)
        except TooManyRequests:
            continue
        done += 1
    return done


def test_so_many_at_once_and_then_so_many_a_second():
    clock = Clock()
    limit = RateLimit(10, clock=clock)
    assert _count(limit, "a", 50) == 20
    with pytest.raises(TooManyRequests) as refused:
        limit.check("a")
    assert refused.value.retry_after_seconds == pytest.approx(0.1)
    assert _count(limit, "b", 5) == 5
    clock.now += 1
    assert _count(limit, "a", 50) == 10
    clock.now += 1000
    assert _count(limit, "a", 50) == 20


def test_looking_costs_nothing():
    limit = RateLimit(1, 2, clock=Clock())
    for _ in range(10):
        limit.check("a", cost=0)
    assert _count(limit, "a", 5) == 2
    with pytest.raises(TooManyRequests):
        limit.check("a", cost=0)


def test_without_a_rate_there_is_no_limit():
    assert _count(RateLimit(0), "a", 1000) == 1000


def test_memory_is_bounded():
    limit = RateLimit(1, clock=Clock())
    for number in range(REMEMBERED + 100):
        limit.check(str(number))
    assert len(limit._buckets._entries) == REMEMBERED


def test_addresses_that_one_caller_may_choose_from_are_one():
    assert name_address("2001:db8::1") == name_address("2001:db8::ffff:1") != name_address("2001:db8:1::1")
    assert name_address("192.0.2.1") == "192.0.2.1"
    assert name_address("") == ""
