"""The arithmetic of rates: never more than the burst at once, never more than the rate in the long run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.rates import Rate

START = datetime(2026, 1, 5, 12, tzinfo=UTC)


@given(
    starts=st.integers(1, 1000),
    seconds=st.sampled_from([0.5, 1.0, 7.0, 60.0, 86_400.0]),
    burst=st.integers(1, 50),
    waits=st.lists(st.floats(0, 100), max_size=40),
)
def test_as_many_start_as_were_earned(starts: int, seconds: float, burst: int, waits: list[float]):
    rate = Rate(starts, seconds, burst)
    now, paid_at, total = START, None, 0
    for wait in waits:
        now += timedelta(seconds=wait)
        free = rate.count_free(paid_at, now)
        assert 0 <= free <= burst
        if free:
            paid_at = rate.pay(paid_at, now, free)
            total += free
            assert rate.count_free(paid_at, now) == 0
        next_at = rate.find_next(paid_at, now)
        assert rate.count_free(paid_at, next_at + timedelta(microseconds=100)) >= 1
    elapsed = (now - START).total_seconds()
    assert total <= burst + elapsed * starts / seconds + 1


def test_rest_earns_no_more_than_the_burst():
    rate = Rate(10, 1.0, 3)
    paid_at = rate.pay(None, START, 3)
    assert rate.count_free(paid_at, START) == 0
    assert rate.find_next(paid_at, START) == START + timedelta(seconds=0.1)
    assert rate.count_free(paid_at, START + timedelta(seconds=0.25)) == 2
    assert rate.count_free(paid_at, START + timedelta(hours=1)) == 3
