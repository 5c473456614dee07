from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.retry import MAX_RETRY_AFTER_SECONDS, RetryPolicy, decide_retry
from rota.domain.work import ErrorType

SECONDS = st.floats(0, 31_536_000)
POLICIES = st.builds(
    RetryPolicy,
    retry_delay_seconds=SECONDS,
    retry_backoff=st.sampled_from(["exponential", "fixed"]),
    retry_max_delay_seconds=SECONDS,
    retry_jitter=st.booleans(),
)


def test_exponential_back_off_doubles_up_to_the_cap():
    policy = RetryPolicy(retry_delay_seconds=1, retry_max_delay_seconds=30)
    waits = [policy.delay_before(number) for number in range(2, 10)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_fixed_back_off_stays_and_is_capped_too():
    policy = RetryPolicy(retry_delay_seconds=7, retry_backoff="fixed")
    assert [policy.delay_before(number) for number in (2, 3, 40)] == [7, 7, 7]
    assert RetryPolicy(retry_delay_seconds=7000, retry_backoff="fixed").delay_before(2) == 3600


def test_the_first_try_waits_for_nothing():
    policy = RetryPolicy(retry_delay_seconds=60)
    assert policy.delay_before(1) == 0
    assert policy.delay_before(0, retry_after_seconds=100) == 0


def test_no_number_of_tries_overflows():
    policy = RetryPolicy(retry_delay_seconds=31_536_000, retry_max_delay_seconds=5)
    assert policy.delay_before(10**9) == 5


def test_full_jitter_spreads_from_nothing_to_the_whole_delay():
    policy = RetryPolicy(retry_delay_seconds=8, retry_jitter=True)
    assert [policy.delay_before(2, randomness=share) for share in (0.0, 0.25, 1.0)] == [0, 2, 8]
    assert RetryPolicy(retry_delay_seconds=8).delay_before(2, randomness=0.25) == 8


@pytest.mark.parametrize(
    ("asked", "wait"),
    [(None, 10), (3, 10), (60, 60), (7200, 7200), (10**9, MAX_RETRY_AFTER_SECONDS), (-5, 10), (math.nan, 10)],
)
def test_retry_after_is_the_least_wait_and_bounded(asked, wait):
    policy = RetryPolicy(retry_delay_seconds=10, retry_jitter=False)
    assert policy.delay_before(2, retry_after_seconds=asked) == wait


def test_a_longer_delay_of_the_policy_stands_against_a_huge_retry_after():
    policy = RetryPolicy(retry_delay_seconds=200_000, retry_max_delay_seconds=200_000)
    assert policy.delay_before(2, retry_after_seconds=10**9) == 200_000


@given(POLICIES, st.integers(1, 2000), st.floats(0, 1))
def test_a_wait_is_never_negative_and_never_over_the_cap(policy, number, randomness):
    wait = policy.delay_before(number, randomness=randomness)
    assert 0 <= wait <= policy.retry_max_delay_seconds


@given(POLICIES, st.integers(1, 200))
def test_waits_never_shrink_from_try_to_try(policy, number):
    assert policy.delay_before(number) <= policy.delay_before(number + 1)


def test_the_count_of_retries_is_the_count_of_further_tries():
    policy = RetryPolicy(retry_count=2)
    decisions = [decide_retry(policy, tries_used=used, error_type="exit_code") for used in (1, 2, 3)]
    assert decisions == [True, True, False]
    assert not decide_retry(RetryPolicy(), tries_used=1)


@pytest.mark.parametrize(
    ("retry_on", "failure", "is_retried"),
    [
        ((), {"error_type": "exit_code", "exit_code": 1}, True),
        ((), {"error_type": "timeout"}, True),
        ((), {"error_type": "http_error", "http_status": 404}, True),
        ((), {"error_type": "http_error", "http_status": 410}, False),
        ((410,), {"error_type": "http_error", "http_status": 410}, True),
        ((), {"error_type": "bad_task"}, False),
        (("bad_task",), {"error_type": "bad_task"}, True),
        ((75,), {"error_type": "exit_code", "exit_code": 75}, True),
        ((75,), {"error_type": "exit_code", "exit_code": 1}, False),
        ((0,), {"error_type": "bad_output", "exit_code": 0}, True),
        ((503,), {"error_type": "http_error", "http_status": 503}, True),
        (("5xx",), {"error_type": "http_error", "http_status": 599}, True),
        (("5xx",), {"error_type": "http_error", "http_status": 404}, False),
        (("5xx",), {"error_type": "timeout"}, False),
        (("5xx", "timeout"), {"error_type": "timeout"}, True),
    ],
)
def test_what_is_retried(retry_on, failure, is_retried):
    assert decide_retry(RetryPolicy(retry_count=1, retry_on=retry_on), tries_used=1, **failure) is is_retried


@pytest.mark.parametrize("error_type", [ErrorType.CANCELLED, ErrorType.POISON, ErrorType.WORKER_LOST])
def test_what_is_not_the_tasks_own_failure_costs_no_retry_even_if_named(error_type):
    policy = RetryPolicy(retry_count=5, retry_on=(str(error_type),))
    assert not decide_retry(policy, tries_used=1, error_type=error_type)
    assert not decide_retry(policy, tries_used=1, error_type=str(error_type))
