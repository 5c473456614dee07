"""When expressions fire over the changes of real time zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.cron import CronFire, DstGap, DstOverlap, fires_after, next_fire, parse_cron

# A moment two to four days before each change of offset.
WINDOWS = [
    ("Europe/Riga", "2026-03-27"),
    ("Europe/Riga", "2026-10-23"),
    ("America/New_York", "2024-03-08"),
    ("America/New_York", "2024-11-01"),
    ("Australia/Lord_Howe", "2024-10-04"),
    ("Australia/Lord_Howe", "2024-04-05"),
    ("Africa/Casablanca", "2025-02-21"),
    ("Africa/Casablanca", "2025-04-04"),
    ("America/Sao_Paulo", "2017-10-13"),
    ("America/Sao_Paulo", "2018-02-15"),
    ("Pacific/Apia", "2011-12-28"),
    ("Antarctica/Troll", "2024-03-29"),
    ("Antarctica/Troll", "2024-10-25"),
    ("Asia/Kathmandu", "2024-03-01"),
]
# cronsim walks wildcard schedules hour by hour of elapsed time. Where a change is not a whole hour, or takes
# midnight away, it lands beside its own fields; Rota keeps to them. See the two tests that show it.
CRONSIM_STRAYS = {"Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"}


def list_local(
    text: str, zone_name: str, after: str, count: int = 3, *, gap: DstGap = "after", overlap: DstOverlap = "first"
) -> list[str]:
    zone = ZoneInfo(zone_name)
    start = datetime.fromisoformat(after).replace(tzinfo=zone)
    fires = fires_after(parse_cron(text), start, zone, dst_gap=gap, dst_overlap=overlap)
    return [fire.at.astimezone(zone).isoformat(timespec="minutes") for fire in islice(fires, count)]


MEASURED = [
    ("30 2 * * *", "America/New_York", "2024-03-09T12:00", ["2024-03-10T03:00-04:00", "2024-03-11T02:30-04:00"]),
    ("30 1 * * *", "America/New_York", "2024-11-02T12:00", ["2024-11-03T01:30-04:00", "2024-11-04T01:30-05:00"]),
    (
        "0 * * * *",
        "America/New_York",
        "2024-11-03T00:10",
        ["2024-11-03T01:00-04:00", "2024-11-03T01:00-05:00", "2024-11-03T02:00-05:00"],
    ),
    (
        "*/30 * * * *",
        "America/New_York",
        "2024-11-03T01:10",
        ["2024-11-03T01:30-04:00", "2024-11-03T01:00-05:00", "2024-11-03T01:30-05:00", "2024-11-03T02:00-05:00"],
    ),
    ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T12:00", ["2024-10-06T02:30+11:00", "2024-10-07T02:15+11:00"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2024-04-06T12:00", ["2024-04-07T01:45+11:00", "2024-04-08T01:45+10:30"]),
    # a skipped day, a midnight that does not exist, a gap of two hours
    ("30 2 * * *", "Pacific/Apia", "2011-12-29T12:00", ["2011-12-31T00:00+14:00", "2011-12-31T02:30+14:00"]),
    ("0 0 * * *", "America/Sao_Paulo", "2017-10-14T12:00", ["2017-10-15T01:00-02:00", "2017-10-16T00:00-02:00"]),
    ("30 1,2 * * *", "Antarctica/Troll", "2024-03-30T12:00", ["2024-03-31T03:00+02:00", "2024-04-01T01:30+02:00"]),
    # what the gap moved and what stood at its end are one fire
    ("0 2,3 * * *", "America/New_York", "2024-03-09T12:00", ["2024-03-10T03:00-04:00", "2024-03-11T02:00-04:00"]),
    # seconds make no difference to what is fixed
    ("0 30 2 * * *", "America/New_York", "2024-03-09T12:00", ["2024-03-10T03:00-04:00"]),
    # a wildcard has nothing in the gap
    ("*/20 2 * * *", "America/New_York", "2024-03-09T12:00", ["2024-03-11T02:00-04:00"]),
]


@pytest.mark.parametrize(("text", "zone_name", "after", "expected"), MEASURED)
def test_default_policy(text: str, zone_name: str, after: str, expected: list[str]) -> None:
    assert list_local(text, zone_name, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("gap", "expected"),
    [("after", "2024-03-10T03:00-04:00"), ("before", "2024-03-10T01:59-05:00"), ("skip", "2024-03-11T02:30-04:00")],
)
def test_gap_policy(gap: DstGap, expected: str) -> None:
    found = list_local("30 2 * * *", "America/New_York", "2024-03-09T12:00", 2, gap=gap)
    assert found[0] == expected
    assert found[1] == ("2024-03-12T02:30-04:00" if gap == "skip" else "2024-03-11T02:30-04:00")


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("first", ["2024-11-03T01:10-04:00", "2024-11-03T01:50-04:00", "2024-11-04T01:10-05:00"]),
        ("second", ["2024-11-03T01:10-05:00", "2024-11-03T01:50-05:00", "2024-11-04T01:10-05:00"]),
        ("both", ["2024-11-03T01:10-04:00", "2024-11-03T01:50-04:00", "2024-11-03T01:10-05:00"]),
    ],
)
def test_overlap_policy(overlap: DstOverlap, expected: list[str]) -> None:
    found = list_local("10,50 1 * * *", "America/New_York", "2024-11-02T12:00", 3, overlap=overlap)
    assert found == expected


@pytest.mark.parametrize("overlap", ["first", "second"])
def test_a_start_inside_the_overlap_neither_repeats_nor_loses_a_fire(overlap: DstOverlap) -> None:
    zone, cron = ZoneInfo("America/New_York"), parse_cron("0-59 1 * * *")
    begin, end = datetime(2024, 11, 3, 4, tzinfo=UTC), datetime(2024, 11, 3, 8, tzinfo=UTC)
    fires = fires_after(cron, begin, zone, dst_overlap=overlap)
    whole = [fire.at for fire in takewhile(lambda fire: fire.at <= end, fires)]
    assert len(whole) == 60
    for minutes in range(0, 240, 7):
        start = begin + timedelta(minutes=minutes)
        found = next_fire(cron, start, zone, dst_overlap=overlap)
        assert found is not None
        assert found.at == next((at for at in whole if at > start), found.at)
        assert found.at > start


def test_notes_say_what_happened() -> None:
    def note(text: str, zone_name: str, after: str, **policies: str) -> str | None:
        zone = ZoneInfo(zone_name)
        start = datetime.fromisoformat(after).replace(tzinfo=zone)
        fire = next_fire(parse_cron(text), start, zone, **policies)  # type: ignore[arg-type]
        assert fire is not None
        return fire.note

    riga = "02:30 does not exist"
    assert note("30 3 * * *", "Europe/Riga", "2026-03-28T12:00") == (
        "03:30 does not exist on 2026-03-29 in Europe/Riga; runs at 04:00"
    )
    assert note("30 2 * * *", "Pacific/Apia", "2011-12-29T12:00") == (
        f"{riga} on 2011-12-30 in Pacific/Apia; runs at 2011-12-31 00:00"
    )
    assert note("30 3 * * *", "Europe/Riga", "2026-10-24T12:00") == "first of two 03:30"
    assert note("30 3 * * *", "Europe/Riga", "2026-10-24T12:00", dst_overlap="second") == "second of two 03:30"
    assert note("30 3 * * *", "Europe/Riga", "2026-10-25T12:00") is None


def test_naive_instants_are_refused() -> None:
    with pytest.raises(ValueError, match="pass an aware datetime"):
        next_fire(parse_cron("@daily"), datetime(2026, 1, 1), ZoneInfo("UTC"))  # noqa: DTZ001


def test_far_fires_are_found_without_walking_there() -> None:
    zone = ZoneInfo("Europe/Riga")
    found = next_fire(parse_cron("0 4 29 2 +MON"), datetime(2072, 3, 1, tzinfo=UTC), zone)
    assert found == CronFire(datetime(2112, 2, 29, 4, tzinfo=zone).astimezone(UTC))
    assert next_fire(parse_cron("0 0 0 1 1 * 2020"), datetime(2026, 1, 1, tzinfo=UTC), zone) is None


def choose_field(low: int, high: int) -> st.SearchStrategy[str]:
    # A range of one value with a step is left out: cronsim reads 3-3/2 as 3-59/2.
    value = st.integers(low, high).map(str)
    span = st.tuples(st.integers(low, high - 1), st.integers(1, high)).map(
        lambda pair: f"{pair[0]}-{min(high, pair[0] + pair[1])}"
    )
    step = st.integers(1, (high - low) // 2 + 1)
    return st.one_of(
        st.just("*"),
        value,
        step.map(lambda number: f"*/{number}"),
        span,
        st.tuples(span, step).map(lambda pair: f"{pair[0]}/{pair[1]}"),
        st.lists(value, min_size=2, max_size=3).map(",".join),
    )


EXPRESSIONS = st.tuples(
    choose_field(0, 59),
    st.one_of(choose_field(0, 23), choose_field(0, 4)),
    st.one_of(st.just("*"), choose_field(1, 31)),
    st.just("*"),
    st.one_of(st.just("*"), choose_field(0, 6)),
).map(" ".join)


@settings(deadline=None)
@given(text=EXPRESSIONS, window=st.sampled_from(WINDOWS), minutes=st.integers(0, 1440))
def test_default_policy_agrees_with_debian_cron(text: str, window: tuple[str, str], minutes: int) -> None:
    zone = ZoneInfo(window[0])
    cron = parse_cron(text)
    start = datetime.fromisoformat(window[1]).replace(tzinfo=zone).astimezone(UTC) + timedelta(minutes=minutes)
    end = start + timedelta(days=4)
    fires = takewhile(lambda at: at <= end, (fire.at for fire in fires_after(cron, start, zone)))
    found = list(islice(fires, 400))
    if cron.is_wildcard and window[0] in CRONSIM_STRAYS:
        expected = walk_elapsed_time(text, zone, start, end)
    else:
        ticks = (tick.astimezone(UTC) for tick in CronSim(text, start.astimezone(zone)))
        expected = list(islice(takewhile(lambda at: at <= end, ticks), 400))
    assert found == expected[:400]


def walk_elapsed_time(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """Every minute whose local clock matches, one by one: the definition of a wildcard schedule."""
    cron = parse_cron(text)
    minute = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    found = []
    while minute <= end:
        local = minute.astimezone(zone).replace(tzinfo=None)
        if cron.next_local(local - timedelta(seconds=1)) == local:
            found.append(minute)
        minute += timedelta(minutes=1)
    return found


@pytest.mark.parametrize(
    ("text", "zone_name", "after", "until"),
    [
        ("* 0-15/2 * * 0-2", "America/Sao_Paulo", "2017-10-14T18:39", "2017-10-15T02:30"),
        ("37 */1 * * *", "Australia/Lord_Howe", "2024-10-06T00:40", "2024-10-06T03:10"),
    ],
)
def test_where_rota_differs_from_cronsim_it_keeps_to_the_fields(
    text: str, zone_name: str, after: str, until: str
) -> None:
    zone = ZoneInfo(zone_name)
    start = datetime.fromisoformat(after).replace(tzinfo=zone)
    end = datetime.fromisoformat(until).replace(tzinfo=zone).astimezone(UTC)
    found = [fire.at for fire in takewhile(lambda fire: fire.at <= end, fires_after(parse_cron(text), start, zone))]
    theirs = (tick.astimezone(UTC) for tick in CronSim(text, start))
    assert found == walk_elapsed_time(text, zone, start.astimezone(UTC), end)
    assert found != list(takewhile(lambda at: at <= end, theirs))


@settings(deadline=None, max_examples=60)
@given(
    text=EXPRESSIONS,
    window=st.sampled_from(WINDOWS),
    gap=st.sampled_from(["after", "skip", "before"]),
    overlap=st.sampled_from(["first", "second", "both"]),
    hours=st.integers(0, 96),
)
def test_fires_increase_and_match_the_local_clock(
    text: str, window: tuple[str, str], gap: DstGap, overlap: DstOverlap, hours: int
) -> None:
    zone = ZoneInfo(window[0])
    cron = parse_cron(text)
    start = datetime.fromisoformat(window[1]).replace(tzinfo=zone).astimezone(UTC) + timedelta(hours=hours)
    fires = list(islice(fires_after(cron, start, zone, dst_gap=gap, dst_overlap=overlap), 150))
    assert all(before.at < fire.at for before, fire in pairwise(fires))
    for fire in fires:
        local = fire.at.astimezone(zone).replace(tzinfo=None)
        is_match = cron.next_local(local - timedelta(seconds=1)) == local
        assert is_match or "does not exist" in (fire.note or "")
        # From any earlier instant the same fire comes next, or one before it.
        earlier = next_fire(cron, fire.at - timedelta(seconds=1), zone, dst_gap=gap, dst_overlap=overlap)
        assert earlier is not None
        assert earlier.at == fire.at


def test_a_tick_of_the_gap_is_found_from_the_last_second_before_it() -> None:
    zone = ZoneInfo("America/New_York")
    end_of_gap = datetime(2024, 3, 10, 7, tzinfo=UTC)
    for before in (timedelta(seconds=1), timedelta(microseconds=1), timedelta(hours=3)):
        found = next_fire(parse_cron("30 2 * * *"), end_of_gap - before, zone)
        assert found is not None
        assert found.at == end_of_gap
