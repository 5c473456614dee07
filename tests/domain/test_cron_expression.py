"""What a cron expression means on the wall clock, and what is refused."""
# ruff: noqa: DTZ001 (wall-clock times have no zone)

from __future__ import annotations

import calendar
import time
from datetime import date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.cron import load_cron, parse_cron
from rota.domain.errors import InvalidInput


def list_next(text: str, after: str, count: int, seed: str = "") -> list[str]:
    cron = parse_cron(text, seed=seed)
    at: datetime | None = datetime.fromisoformat(after)
    found: list[str] = []
    while at is not None and len(found) < count:
        at = cron.next_local(at)
        if at is not None:
            found.append(f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00"))
    return found


MEANINGS = [
    # lists, ranges, steps, names
    ("5,35 6 * * *", "2026-03-01", ["2026-03-01 06:05", "2026-03-01 06:35", "2026-03-02 06:05"]),
    ("7-40/15 6 * * *", "2026-03-01", ["2026-03-01 06:07", "2026-03-01 06:22", "2026-03-01 06:37"]),
    ("  0\t0  1  feb-Mar   * ", "2026-01-01", ["2026-02-01 00:00", "2026-03-01 00:00"]),
    ("0 9 * * fri-sun", "2026-03-02", ["2026-03-06 09:00", "2026-03-07 09:00", "2026-03-08 09:00"]),
    ("0 9 * * 7", "2026-03-02", ["2026-03-08 09:00", "2026-03-15 09:00"]),
    ("0 9 * * 0-7/6", "2026-03-02", ["2026-03-07 09:00", "2026-03-08 09:00"]),
    # day-of-month and day-of-week: either, unless one starts with a star or + asks for both
    ("0 12 13 * FRI", "2026-03-08", ["2026-03-13 12:00", "2026-03-20 12:00", "2026-03-27 12:00"]),
    ("0 12 13 * +FRI", "2026-01-01", ["2026-02-13 12:00", "2026-03-13 12:00", "2026-11-13 12:00"]),
    ("0 12 1-31 * MON", "2026-03-02", ["2026-03-02 12:00", "2026-03-03 12:00"]),
    ("0 12 */10 * MON", "2026-03-01", ["2026-05-11 12:00", "2026-06-01 12:00"]),
    ("0 12 ? * MON", "2026-03-03", ["2026-03-09 12:00"]),
    ("0 12 15 * ?", "2026-03-03", ["2026-03-15 12:00", "2026-04-15 12:00"]),
    # last days, nearest weekdays, nth weekdays
    ("0 0 L * *", "2028-01-31T12:00", ["2028-02-29 00:00", "2028-03-31 00:00", "2028-04-30 00:00"]),
    ("0 0 L-2,15 * *", "2027-02-16", ["2027-02-26 00:00", "2027-03-15 00:00", "2027-03-29 00:00"]),
    ("0 0 15W * *", "2026-02-01", ["2026-02-16 00:00", "2026-03-16 00:00", "2026-04-15 00:00"]),
    ("0 0 1W * *", "2026-07-15", ["2026-08-03 00:00", "2026-09-01 00:00"]),
    ("0 0 31W * *", "2026-01-01", ["2026-01-30 00:00", "2026-03-31 00:00"]),
    ("0 0 LW * *", "2026-01-01", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
    ("0 0 * * TUE#2", "2026-03-01", ["2026-03-10 00:00", "2026-04-14 00:00"]),
    ("0 0 * * 5#5", "2026-01-01", ["2026-01-30 00:00", "2026-05-29 00:00"]),
    ("0 0 * * FRI#L", "2026-02-01", ["2026-02-27 00:00", "2026-03-27 00:00"]),
    ("0 0 * * 7L", "2026-02-01", ["2026-02-22 00:00", "2026-03-29 00:00"]),
    # seconds first, year last
    ("15,45 30 6 * * *", "2026-03-01", ["2026-03-01 06:30:15", "2026-03-01 06:30:45"]),
    ("0 0 0 29 2 * 2027-2036", "2026-01-01", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
    ("0 0 0 1 1 * 2020", "2026-01-01", []),
    ("0 0 29 2 +MON", "2028-03-01", ["2044-02-29 00:00", "2072-02-29 00:00", "2112-02-29 00:00"]),
    # nicknames
    ("@hourly", "2026-03-01T10:30", ["2026-03-01 11:00"]),
    ("@midnight", "2026-03-01T10:30", ["2026-03-02 00:00"]),
    ("@weekly", "2026-03-02", ["2026-03-08 00:00"]),
    (" @yearly ", "2026-03-02", ["2027-01-01 00:00"]),
]


@pytest.mark.parametrize(("text", "after", "expected"), MEANINGS)
def test_expression_means(text: str, after: str, expected: list[str]) -> None:
    assert list_next(text, after, max(1, len(expected))) == expected


FAULTS = [
    ("60 * * * *", "minute: 60 is out of range; send 0-59"),
    ("* 24 * * *", "hour: 24"),
    ("* * 0 * *", "day-of-month: 0"),
    ("* * * 13 *", "month: 13"),
    ("* * * * 8", "day-of-week: 8 is out of range; send 0-7"),
    ("60 * * * * *", "second: 60"),
    ("0 0 0 1 1 * 1969", "year: 1969"),
    ("* * 10-5 * *", "send 10-31,1-5"),
    ("* * * * FRI-MON", "send FRI-7,0-MON"),
    ("*/0 * * * *", "no usable step"),
    ("/5 * * * *", "a value is missing"),
    ("5/15 * * * *", "send 5-59/15 instead of 5/15"),
    ("1,,2 * * * *", "a value is missing"),
    ("*,61 * * * *", "61 is out of range"),
    ("\u0661 * * * *", "is not understood"),
    ("-5 * * * *", "a value is missing"),
    ("? * * * *", "'?' is not understood"),
    ("+5 * * * *", "has a + where none may stand"),
    ("* * +5 * MON", "has a + where none may stand"),
    ("* * 1-15W * *", "'1-15W' is not understood"),
    ("* * 32W * *", "32 is out of range"),
    ("* * L-31 * *", "send L-1 to L-30"),
    ("* * * * L", "send for example FRI#2, 5L"),
    ("* * * * MON#6", "send #1 to #5"),
    ("* * * * MON-FRI#1", "is not understood"),
    ("H(0-60) * * * *", "60 is out of range"),
    ("* * * * * * H", "a year cannot be chosen"),
    ("* * * *", "this one has 4"),
    ("", "this one has 0"),
    ("@Daily", "is not a known nickname"),
    ("@daily 0", "is not a known nickname"),
    ("@reboot", "@reboot has no time"),
    ("@every 5m", "send `interval`"),
    ("CRON_TZ=Europe/Riga 0 2 * * *", "send the zone as `timezone`"),
    ("0 0 31 2 *", "no date ever matches: day-of-month 31"),
    ("0 0 30 2 *", "no date ever matches"),
    ("0 0 31 4,6,9,11 *", "no date ever matches"),
    ("0 0 1-7 * +MON#5", "no date ever matches"),
    ("0 0 0 29 2 * 2027", "month 2 of 2027"),
    ("9" * 1001, "longer than 1000 characters"),
]


@pytest.mark.parametrize(("text", "reason"), FAULTS)
def test_faulty_expression_is_refused_with_a_remedy(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cron(text, field="schedules[1].schedule_cron")
    assert [error.field for error in caught.value.errors] == ["schedules[1].schedule_cron"]
    assert reason in caught.value.errors[0].reason


def test_every_faulty_field_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cron("60 25 32 13 9")
    assert [error.reason.split(":")[0] for error in caught.value.errors] == [
        "minute",
        "hour",
        "day-of-month",
        "month",
        "day-of-week",
    ]


def test_hash_is_stable_and_different_per_field_and_seed() -> None:
    # These values are a promise: a change would move every hashed schedule of every installation.
    assert list_next("H H * * *", "2026-03-01", 1, seed="0192f0c1") == ["2026-03-01 05:35"]
    minutes = {list_next("H * * * *", "2026-03-01", 1, seed=str(seed))[0] for seed in range(300)}
    assert len(minutes) > 50
    assert parse_cron("H 1 * * *", seed="a") == parse_cron("H 1 * * *", seed="a")


@pytest.mark.parametrize(
    ("text", "low", "high", "count"),
    [
        ("H * * * *", 0, 59, 1),
        ("H(10-19) * * * *", 10, 19, 1),
        ("10~19 * * * *", 10, 19, 1),
        ("~ * * * *", 0, 59, 1),
        ("50~ * * * *", 50, 59, 1),
        ("~5 * * * *", 0, 5, 1),
        ("H/15 * * * *", 0, 59, 4),
        ("H(0-29)/10 * * * *", 0, 29, 3),
        ("H/90 * * * *", 0, 59, 1),
    ],
)
def test_hash_stays_within_its_bounds(text: str, low: int, high: int, count: int) -> None:
    for seed in map(str, range(40)):
        cron = parse_cron(text, seed=seed)
        minutes = [minute for minute in range(60) if cron.minutes >> minute & 1]
        assert len(minutes) == count
        assert low <= minutes[0] <= minutes[-1] <= high


def test_hashed_day_exists_in_every_month() -> None:
    for seed in map(str, range(100)):
        cron = parse_cron("H H H * *", seed=seed)
        assert cron.days.month_mask.bit_length() - 1 <= 28


def test_names_with_an_h_are_not_hashes() -> None:
    assert parse_cron("0 0 * MAR THU", seed="a") == parse_cron("0 0 * MAR THU", seed="b")


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 0 31 2 * 1970-2199", "0 0 29 2 +MON#5", "0 0 1-7 * +MON#5"])
def test_search_is_bounded(text: str) -> None:
    cron = load_cron(text)
    started = time.process_time()
    for _ in range(10):
        cron.next_local(datetime(2026, 1, 1))
    assert (time.process_time() - started) / 10 < 0.010


def test_there_is_no_next_time_at_the_end_of_the_calendar() -> None:
    assert parse_cron("0 0 1 1 *").next_local(datetime(9990, 6, 1)) is None


FieldChoice = tuple[str, frozenset[int]]


def choose_field(low: int, high: int) -> st.SearchStrategy[FieldChoice]:
    """A field's text together with the values it stands for, by construction."""

    def build_range(numbers: tuple[int, int, int]) -> FieldChoice:
        first, last = sorted(numbers[:2])
        step = numbers[2]
        return f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))

    value = st.integers(low, high)
    star = st.integers(1, high).map(lambda step: (f"*/{step}", frozenset(range(low, high + 1, step))))
    several = st.lists(value, min_size=1, max_size=4).map(lambda found: (",".join(map(str, found)), frozenset(found)))
    everything = st.just(("*", frozenset(range(low, high + 1))))
    return st.one_of(everything, star, several, st.tuples(value, value, st.integers(1, high)).map(build_range))


@given(
    minute=choose_field(0, 59),
    hour=choose_field(0, 23),
    day=choose_field(1, 31),
    month=choose_field(1, 12),
    weekday=choose_field(0, 6),
    after=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)),
)
def test_next_is_the_first_match(
    minute: FieldChoice,
    hour: FieldChoice,
    day: FieldChoice,
    month: FieldChoice,
    weekday: FieldChoice,
    after: datetime,
) -> None:
    def matches(at: date) -> bool:
        by_day, by_weekday = at.day in day[1], at.isoweekday() % 7 in weekday[1]
        is_and = day[0].startswith("*") or weekday[0].startswith("*")
        return at.month in month[1] and (by_day and by_weekday if is_and else by_day or by_weekday)

    text = " ".join(chosen[0] for chosen in (minute, hour, day, month, weekday))
    dates = (after.date() + timedelta(days=number) for number in range(800))
    expected = None
    for on in filter(matches, dates):
        times = (datetime(on.year, on.month, on.day, at, to) for at in sorted(hour[1]) for to in sorted(minute[1]))
        expected = next((at for at in times if at > after), None)
        if expected is not None:
            break
    found = load_cron(text).next_local(after)
    if expected is not None:
        assert found == expected
    else:
        assert found is None or found.date() >= after.date() + timedelta(days=800)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1)), st.integers(0, 10**7))
def test_next_never_runs_backwards(after: datetime, seconds: int) -> None:
    for text in ("*/7 3-9 * * *", "0 0 L * *", "30 4 15W * +MON-FRI", "9 */5 * 2 2#1"):
        cron = parse_cron(text)
        first, second = cron.next_local(after), cron.next_local(after + timedelta(seconds=seconds))
        assert first is not None
        assert second is not None
        assert after < first <= second


def test_nearest_weekday_never_leaves_the_month_nor_the_week() -> None:
    cron = parse_cron("0 0 1W,31W,LW * *")
    ticks = [datetime(2020, 1, 1)]
    for _ in range(300):
        tick = cron.next_local(ticks[-1])
        assert tick is not None
        ticks.append(tick)
    for before, tick in pairwise(ticks):
        assert tick > before
        assert tick.weekday() < 5
        assert tick.day <= 3 or tick.day >= calendar.monthrange(tick.year, tick.month)[1] - 2
