"""Which ticks run, which are skipped and why."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.cron import load_zone
from rota.domain.schedule import ScheduleSpec, initial_cursor, parse_schedule
from rota.domain.schedule_plan import COUNT_MOST, CURRENT_MOST, Fire, Plan, plan_fires, preview
from rota.domain.schedule_ticks import ScheduleTicks

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
ANCHOR = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)


def build(**data: object) -> ScheduleSpec:
    return parse_schedule(data, now=None)


def plan(spec: ScheduleSpec, cursor: datetime, now: datetime = NOW, horizon: datetime | None = None) -> Plan:
    until = horizon or now + timedelta(seconds=10)
    return plan_fires(spec, seed="s1", anchor=ANCHOR, cursor=cursor, now=now, horizon=until)


def plan_all(spec: ScheduleSpec, cursor: datetime, now: datetime, horizon: datetime) -> list[Plan]:
    """Plans until one decides nothing more."""
    plans = [plan(spec, cursor, now, horizon)]
    while len(plans[-1].fires) + sum(skip.count for skip in plans[-1].skipped) >= CURRENT_MOST:
        plans.append(plan(spec, plans[-1].cursor, now, horizon))
    return plans


def list_times(fires: tuple[Fire, ...]) -> list[str]:
    return [f"{fire.logical_at:%H:%M:%S}" for fire in fires]


def test_the_slot_ahead_is_planned_once() -> None:
    spec = build(cron="*/4 * * * * *")
    first = plan(spec, NOW)
    assert list_times(first.fires) == ["12:00:04", "12:00:08"]
    assert first.next_due_at == NOW + timedelta(seconds=12)
    again = plan(spec, first.cursor)
    assert again.fires == ()
    assert again.cursor == first.cursor


def test_nothing_due_moves_the_cursor_to_now_but_not_past_the_slot() -> None:
    planned = plan(build(cron="0 * * * *"), NOW - timedelta(minutes=30), NOW + timedelta(minutes=10))
    assert planned.cursor == NOW + timedelta(minutes=10)
    assert planned.next_due_at == NOW + timedelta(hours=1)


def test_a_clock_that_jumps_back_never_repeats_a_tick() -> None:
    spec = build(cron="* * * * *")
    first = plan(spec, NOW, NOW + timedelta(minutes=1))
    assert list_times(first.fires) == ["12:01:00"]
    assert plan(spec, first.cursor, NOW - timedelta(hours=5)).fires == ()
    assert plan(spec, first.cursor, NOW - timedelta(hours=5)).cursor == first.cursor


@pytest.mark.parametrize(
    ("misfire", "fires", "reason", "count"),
    [
        ("skip", ["11:59:00", "12:00:00"], "misfire", 14),
        ("latest", ["11:58:00", "11:59:00", "12:00:00"], "misfire", 13),
        ("all", ["11:56:00", "11:57:00", "11:58:00", "11:59:00", "12:00:00"], "over_catch_up_limit", 11),
    ],
)
def test_misfire(misfire: str, fires: list[str], reason: str, count: int) -> None:
    spec = build(cron="* * * * *", misfire=misfire, catch_up_limit=3)
    planned = plan(spec, NOW - timedelta(minutes=16))
    assert list_times(planned.fires) == fires
    (skip,) = planned.skipped
    assert (skip.reason, skip.count, skip.is_count_exact) == (reason, count, True)
    assert skip.first_at == NOW - timedelta(minutes=15)
    assert skip.last_at == skip.first_at + timedelta(minutes=count - 1)


def test_a_tick_is_missed_only_beyond_its_grace() -> None:
    spec = build(cron="0 12 * * *", misfire="skip", grace_seconds=60)
    assert len(plan(spec, NOW - timedelta(hours=1), NOW + timedelta(seconds=60)).fires) == 1
    late = plan(spec, NOW - timedelta(hours=1), NOW + timedelta(seconds=61))
    assert late.fires == ()
    assert [skip.count for skip in late.skipped] == [1]


def test_once() -> None:
    spec = build(run_at="2026-11-18T12:00:05Z")
    planned = plan(spec, initial_cursor(spec, NOW))
    assert list_times(planned.fires) == ["12:00:05"]
    assert planned.is_finished
    past = build(run_at="2026-11-01T00:00:00Z")
    planned = plan(past, initial_cursor(past, NOW))
    assert [fire.logical_at for fire in planned.fires] == [datetime(2026, 11, 1, tzinfo=UTC)]
    assert planned.is_finished
    assert plan(past, planned.cursor).fires == ()


def test_an_interval_counts_from_its_anchor() -> None:
    spec = build(interval="90s")
    planned = plan(spec, NOW, NOW + timedelta(seconds=80), NOW + timedelta(seconds=200))
    assert [(fire.logical_at - ANCHOR) % timedelta(seconds=90) for fire in planned.fires] == [timedelta(0)] * 3
    started = build(interval="1h", start_at="2026-11-18T12:00:05Z")
    assert list_times(plan(started, NOW).fires) == ["12:00:05"]
    assert plan(started, NOW).next_due_at == NOW + timedelta(hours=1, seconds=5)


def test_start_and_end_are_part_of_the_schedule() -> None:
    spec = build(cron="* * * * *", start_at="2026-11-18T12:05:00Z", end_at="2026-11-18T12:07:00Z")
    planned = plan(spec, NOW, NOW, NOW + timedelta(hours=1))
    assert list_times(planned.fires) == ["12:05:00", "12:06:00", "12:07:00"]
    assert planned.is_finished
    assert plan(spec, NOW).next_due_at == NOW + timedelta(minutes=5)


def test_the_calendar_is_read_in_the_zone_of_the_schedule() -> None:
    spec = build(cron="30 0 * * *", timezone="Europe/Riga", calendar=["SAT", "SUN", "2026-11-23/2026-11-24"])
    planned = plan(spec, NOW, NOW, NOW + timedelta(days=8))
    days = [fire.logical_at.astimezone(load_zone("Europe/Riga")).strftime("%a %d") for fire in planned.fires]
    assert days == ["Thu 19", "Fri 20", "Wed 25", "Thu 26"]
    assert [(skip.reason, skip.count) for skip in planned.skipped] == [("excluded_by_calendar", 4)]


def test_the_next_wake_up_is_after_the_excluded_days() -> None:
    spec = build(cron="* * * * *", calendar=["2026-11-18/2027-03-31"])
    assert plan(spec, NOW).next_due_at == datetime(2027, 4, 1, tzinfo=UTC)
    never = build(cron="0 0 * * MON", calendar=["MON"])
    assert plan(never, NOW).is_finished


def test_excluded_ticks_are_not_missed_ticks() -> None:
    spec = build(cron="0 * * * *", calendar=["2026-11-17"], misfire="latest")
    planned = plan(spec, NOW - timedelta(hours=48), NOW + timedelta(minutes=30))
    assert list_times(planned.fires) == ["12:00:00"]
    assert {skip.reason: skip.count for skip in planned.skipped} == {"excluded_by_calendar": 24, "misfire": 23}


def test_jitter_is_stable_spread_and_ends_before_the_next_tick() -> None:
    spec = build(cron="*/10 * * * * *", jitter_seconds=3600)
    delays = set()
    for seed in map(str, range(50)):
        planned = plan_fires(spec, seed=seed, anchor=ANCHOR, cursor=NOW, now=NOW, horizon=NOW + timedelta(seconds=30))
        (delay,) = {fire.due_at - fire.logical_at for fire in planned.fires}
        assert timedelta(0) <= delay < timedelta(seconds=10)
        delays.add(delay)
    assert len(delays) == 50


def test_a_tick_that_jitter_keeps_in_time_is_not_missed() -> None:
    spec = build(cron="0 * * * *", jitter_seconds=3600, grace_seconds=0, misfire="skip")
    due_at = plan(spec, NOW, NOW, NOW + timedelta(hours=1)).fires[0].due_at
    assert due_at > NOW + timedelta(hours=1)
    assert len(plan(spec, NOW, due_at).fires) == 1
    assert plan(spec, NOW, due_at + timedelta(microseconds=1)).fires == ()


def test_many_ticks_come_in_portions() -> None:
    spec = build(cron="* * * * * *", grace_seconds=3600)
    plans = plan_all(spec, NOW, NOW + timedelta(seconds=250), NOW + timedelta(seconds=260))
    assert [len(planned.fires) for planned in plans] == [CURRENT_MOST, CURRENT_MOST, 60]
    assert plans[0].next_due_at == NOW + timedelta(seconds=101)
    assert plans[2].next_due_at == NOW + timedelta(seconds=261)


@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
@pytest.mark.parametrize(
    "rule",
    [
        {"cron": "* * * * * *"},
        {"interval": "1s"},
        {"cron": "* * * 1 1 *"},
        {"cron": "* * * * * *", "calendar": ["SAT"]},
    ],
)
def test_a_sleep_of_thirty_years_is_planned_in_bounded_time(rule: dict[str, object], misfire: str) -> None:
    spec = build(**rule, misfire=misfire, start_at="1990-01-01")
    started = time.process_time()
    planned = plan(spec, NOW - timedelta(days=30 * 365))
    assert time.process_time() - started < 2.0
    newest = [fire.logical_at for fire in planned.fires if fire.logical_at < NOW - timedelta(seconds=60)]
    assert len(newest) == {"skip": 0, "latest": 1, "all": 100}[misfire]
    missed = next(skip for skip in planned.skipped if skip.reason != "excluded_by_calendar")
    if "interval" in rule:
        expected = 30 * 365 * 86_400 - 61 - len(newest)
        assert (missed.count, missed.is_count_exact) == (expected, True)
    else:
        assert not missed.is_count_exact
        assert sum(skip.count for skip in planned.skipped) >= COUNT_MOST - 100
    assert missed.last_at < min(newest, default=NOW)


def test_preview_shows_local_time_and_what_is_special() -> None:
    spec = build(cron="30 3 * * *", timezone="Europe/Riga")
    start = datetime(2026, 10, 24, 0, 30, tzinfo=UTC)
    found = preview(spec, seed="s1", anchor=ANCHOR, start=start, count=3)
    assert [(fire.local, fire.note) for fire in found] == [
        ("2026-10-24T03:30:00+03:00", None),
        ("2026-10-25T03:30:00+03:00", "first of two 03:30"),
        ("2026-10-26T03:30:00+02:00", None),
    ]
    assert found[0].at == start
    jittered = build(cron="@daily", jitter_seconds=60)
    (fire,) = preview(jittered, seed="s1", anchor=ANCHOR, start=NOW, count=1)
    assert fire.note is not None
    assert fire.note.endswith("s later (jitter)")
    assert len(preview(build(run_at="2027-01-01"), seed="s1", anchor=ANCHOR, start=NOW, count=5)) == 1


SPECS = st.builds(
    lambda rule, jitter, calendar, misfire, grace, limit: build(
        **rule,
        timezone="Europe/Riga",
        jitter_seconds=jitter,
        calendar=calendar,
        misfire=misfire,
        grace_seconds=grace,
        catch_up_limit=limit,
    ),
    st.sampled_from(
        [
            {"cron": "*/7 * * * *"},
            {"cron": "13,15 3 * * *"},
            {"cron": "H/20 H * * *"},
            {"cron": "5,50 3-6 * * *", "dst_overlap": "both"},
            {"cron": "30 3 * * *", "dst_overlap": "second"},
            {"interval": "11m"},
        ]
    ),
    st.sampled_from([0, 0, 400]),
    st.sampled_from([[], [], ["SUN"], ["2026-10-25"]]),
    st.sampled_from(["skip", "latest", "all"]),
    st.sampled_from([0, 60, 7200]),
    st.integers(1, 40),
)
DST_DAY = datetime(2026, 10, 24, tzinfo=UTC)


@settings(deadline=None)
@given(spec=SPECS, minutes=st.lists(st.integers(0, 4000), min_size=3, max_size=6).map(sorted))
def test_splitting_a_span_changes_nothing_while_nothing_is_missed(spec: ScheduleSpec, minutes: list[int]) -> None:
    edges = [DST_DAY + timedelta(minutes=number) for number in minutes]
    whole = plan_all(spec, edges[0], edges[0], edges[-1])
    parts: list[Plan] = []
    for horizon in edges[1:]:
        cursor = parts[-1].cursor if parts else edges[0]
        parts += plan_all(spec, cursor, edges[0], horizon)
    assert [fire for part in parts for fire in part.fires] == [fire for part in whole for fire in part.fires]
    assert parts[-1].next_due_at == whole[-1].next_due_at


@settings(deadline=None)
@given(spec=SPECS, minutes=st.lists(st.integers(0, 3000), min_size=2, max_size=5).map(sorted))
def test_every_tick_is_decided_exactly_once_by_the_rule(spec: ScheduleSpec, minutes: list[int]) -> None:
    """A node that wakes at arbitrary moments, against the rule written down plainly."""
    ticks = ScheduleTicks(spec, "s1", ANCHOR)
    cursor = DST_DAY
    for number in minutes:
        now = DST_DAY + timedelta(minutes=number)
        horizon = now + timedelta(seconds=10)
        plans = plan_all(spec, cursor, now, horizon)
        raw = ticks.take(cursor, horizon, 10**6, is_open=False)
        is_open = [not ticks.is_excluded(tick) for tick in raw]
        missed = [ticks.due_at(tick) < now - timedelta(seconds=spec.grace_seconds) for tick in raw]
        late = [tick.at for tick, free, is_late in zip(raw, is_open, missed, strict=True) if free and is_late]
        keep = {"skip": 0, "latest": 1, "all": spec.catch_up_limit}[spec.misfire]
        expected = late[len(late) - min(keep, len(late)) :]
        expected += [tick.at for tick, free, is_late in zip(raw, is_open, missed, strict=True) if free and not is_late]
        assert [fire.logical_at for planned in plans for fire in planned.fires] == expected
        assert sum(skip.count for planned in plans for skip in planned.skipped) == len(raw) - len(expected)
        assert plans[-1].next_due_at is not None
        cursor = plans[-1].cursor
