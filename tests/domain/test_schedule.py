"""Reading and writing a schedule."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import InvalidInput
from rota.domain.schedule import ScheduleSpec, initial_cursor, parse_schedule, schedule_to_dict

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def parse(**data: object) -> ScheduleSpec:
    return parse_schedule(data, now=NOW)


def list_faults(data: dict[str, object], path: str = "") -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        parse_schedule(data, path=path, now=NOW)
    return {error.field: error.reason for error in caught.value.errors}


@pytest.mark.parametrize("word", ["schedule_cron", "cron", "cron_expression", "schedule"])
def test_cron_by_every_word(word: str) -> None:
    assert parse_schedule({word: "0 2 * * *"}, now=NOW) == ScheduleSpec(cron="0 2 * * *")


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        ({"interval_seconds": 90}, 90.0),
        ({"interval_seconds": 1.5}, 1.5),
        ({"interval": "90s"}, 90.0),
        ({"interval": "every 90s"}, 90.0),
        ({"interval": "Every 5 minutes"}, 300.0),
        ({"interval": "@every 1h30m"}, 5400.0),
        ({"interval": "1d"}, 86_400.0),
        ({"interval": "2w"}, 1_209_600.0),
        ({"interval": 60}, 60.0),
    ],
)
def test_interval(data: dict[str, object], seconds: float) -> None:
    assert parse_schedule(data, now=NOW).interval_seconds == seconds


@pytest.mark.parametrize("word", ["run_at", "timestamp"])
def test_one_instant_becomes_utc(word: str) -> None:
    spec = parse_schedule({word: "2026-12-01T10:00:00+02:00"}, now=NOW)
    assert spec.run_at == datetime(2026, 12, 1, 8, tzinfo=UTC)


def test_an_instant_without_offset_is_the_wall_clock_of_the_zone() -> None:
    spec = parse(interval="1h", timezone="Europe/Riga", start_at="2026-12-01T10:00", last_date="2026-12-31")
    assert spec.start_at == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert spec.end_at == datetime(2026, 12, 31, 21, 59, 59, 999_999, tzinfo=UTC)
    faults = list_faults({"run_at": "2027-03-28T03:30", "timezone": "Europe/Riga"})
    assert "2027-03-28T03:30:00 does not exist in Europe/Riga" in faults["run_at"]


def test_all_faults_are_told_at_once() -> None:
    faults = list_faults(
        {
            "schedule_cron": "61 * * * *",
            "interval_seconds": 0,
            "timezone": "Europe/Rigga",
            "misfire": "never",
            "grace_seconds": -1,
            "catch_up_limit": 0,
            "overlap": "maybe",
            "jitter_seconds": "a lot",
            "dst_gap": 7,
            "start_at": "2026-12-02T00:00:00Z",
            "end_at": "2026-12-01T00:00:00Z",
            "calendar": ["2026-02-30", "SAT", 7],
            "pause_after_failures": True,
            "overlapp": "skip",
            "colour": "red",
        },
        path="schedules[0]",
    )
    assert {name.removeprefix("schedules[0].") for name in faults} == {
        "schedule_cron",
        "interval_seconds",
        "timezone",
        "misfire",
        "grace_seconds",
        "catch_up_limit",
        "overlap",
        "jitter_seconds",
        "dst_gap",
        "end_at",
        "calendar[0]",
        "calendar[2]",
        "pause_after_failures",
        "overlapp",
        "colour",
    }
    assert "did you mean Europe/Riga" in faults["schedules[0].timezone"]
    assert "send overlap" in faults["schedules[0].overlapp"]


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        ({}, "schedule_cron", "nothing says when to run"),
        ({"schedule_cron": ""}, "schedule_cron", "nothing says when to run"),
        ({"schedule_cron": 5}, "schedule_cron", "must be text, not a number"),
        ({"cron": "@daily", "run_at": "2027-01-01T00:00:00Z"}, "run_at", "conflicts with cron"),
        ({"cron": "@daily", "schedule_cron": "@daily"}, "cron", "conflicts with schedule_cron"),
        ({"cron": "0 0 31 2 *"}, "cron", "no date ever matches"),
        ({"interval_seconds": -5}, "interval_seconds", "at least 1 second"),
        ({"interval_seconds": 0.5}, "interval_seconds", "at least 1 second"),
        ({"interval_seconds": float("nan")}, "interval_seconds", "at least 1 second"),
        ({"interval_seconds": float("inf")}, "interval_seconds", "at most 100 years"),
        ({"interval_seconds": True}, "interval_seconds", "not a boolean"),
        ({"interval": "soon"}, "interval", "is not a duration"),
        ({"interval": "5 fortnights"}, "interval", "is not a duration"),
        ({"run_at": "2026-12-31T23:59:60Z"}, "run_at", "is not an instant"),
        ({"run_at": 1_800_000_000}, "run_at", "is not an instant"),
        ({"run_at": "9000-01-01T00:00:00Z"}, "run_at", "is out of range"),
        ({"run_at": "2026-11-18T11:59:59Z", "misfire": "skip"}, "run_at", "is already past"),
        ({"run_at": "2027-01-01T00:00:00Z", "end_at": "2026-12-01"}, "run_at", "lies outside"),
        ({"cron": "@daily", "end_at": "2027-01-01", "last_date": "2027-01-01"}, "last_date", "same as end_at"),
        ({"cron": "@daily", "timezone": "riga"}, "timezone", "Europe/Riga"),
        ({"cron": "@daily", "timezone": "../../etc/passwd"}, "timezone", "is not a time zone"),
        ({"cron": "@daily", "timezone": "Europe"}, "timezone", "is not a time zone"),
        ({"cron": "@daily", "timezone": "localtime"}, "timezone", "is not a time zone"),
        ({"cron": "@daily", "calendar": "SAT"}, "calendar", "must be a list"),
        ({"cron": "@daily", "calendar": ["2026-12-26/2026-12-24"]}, "calendar[0]", "ends before it starts"),
        (
            {"cron": "@daily", "calendar": ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]},
            "calendar",
            "leave at least one",
        ),
        ({"cron": "@daily", "catch_up_limit": 1001}, "catch_up_limit", "from 1 to 1000"),
    ],
)
def test_fault(data: dict[str, object], field: str, reason: str) -> None:
    assert reason in list_faults(data)[field]


def test_a_past_instant_runs_now_unless_missed_ticks_are_skipped() -> None:
    spec = parse(run_at="2026-11-18T11:00:00Z")
    assert spec.run_at is not None
    assert initial_cursor(spec, NOW) < spec.run_at
    assert initial_cursor(parse(interval="1h"), NOW) == NOW


def test_what_was_accepted_once_is_read_again_later() -> None:
    data = {"run_at": "2020-01-01T00:00:00Z", "misfire": "skip"}
    assert parse_schedule(data, now=None).run_at == datetime(2020, 1, 1, tzinfo=UTC)


def test_only_what_is_not_default_is_written() -> None:
    spec = parse(cron="H 2 * * *", timezone="UTC", misfire="latest", calendar=["sunday", "2026-12-25", "SUN"])
    assert schedule_to_dict(spec) == {"schedule_cron": "H 2 * * *", "calendar": ["SUN", "2026-12-25"]}


INSTANTS = st.tuples(st.floats(0, 7 * 10**9), st.sampled_from([UTC, timezone(timedelta(hours=5))])).map(
    lambda chosen: datetime.fromtimestamp(chosen[0], chosen[1])
)


@given(
    rule=st.one_of(
        st.sampled_from(["@daily", "H H * * *", "*/5 1-3 * * +MON#1"]).map(lambda text: {"cron": text}),
        st.floats(1, 10**8).map(lambda seconds: {"interval_seconds": seconds}),
    ),
    zone=st.sampled_from(["UTC", "Europe/Riga", "Asia/Kathmandu"]),
    misfire=st.sampled_from(["skip", "latest", "all"]),
    grace=st.integers(0, 10**6),
    span=st.tuples(INSTANTS, INSTANTS).map(sorted),
    calendar=st.lists(st.sampled_from(["SAT", "sun", "2026-12-25", "2026-12-24/2027-01-02"])),
    pause_after=st.one_of(st.none(), st.integers(1, 99)),
)
def test_a_schedule_survives_writing_and_reading(
    rule: dict[str, object],
    zone: str,
    misfire: str,
    grace: int,
    span: list[datetime],
    calendar: list[str],
    pause_after: int | None,
) -> None:
    rest = {"timezone": zone, "misfire": misfire, "grace_seconds": grace, "start_at": span[0], "end_at": span[1]}
    spec = parse_schedule(rule | rest | {"calendar": calendar, "pause_after_failures": pause_after}, now=NOW)
    written = json.loads(json.dumps(schedule_to_dict(spec)))
    assert parse_schedule(written, now=None) == spec
