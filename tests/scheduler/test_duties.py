"""Duties, round by round, on a clock that the test moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.work import Finished, Registration
from rota.engine import expand
from rota.scheduler.duties import MOST_BATCHES, BatchDuty, build_duties, build_housekeeping
from rota.scheduler.service import Scheduler, SchedulerOptions

EVERY_MINUTE = "* * * * *"


def _scheduler(bench, **options: Any) -> Scheduler:
    return Scheduler(bench.engine, bench.metrics, SchedulerOptions(**options))


def _duty(bench, name: str):
    duties = build_duties(bench.engine, bench.metrics)
    housekeeping = build_housekeeping(bench.engine, None, retention_seconds=3600.0)
    return next(duty for duty in (*duties, *housekeeping) if duty.name == name)


async def _claim(bench, limit=1):
    registered = await bench.engine.register(Registration(name="w", concurrency=limit))
    worker = registered.identity
    return worker, await bench.engine.claim(worker, limit=limit)


async def test_without_anything_due_the_clock_waits_for_its_longest_time(bench):
    assert await _scheduler(bench, slot_gap_seconds=7.0).run_due() == 7.0


async def test_the_clock_waits_for_the_next_due_instant(bench):
    await bench.apply(schedule_cron=EVERY_MINUTE)
    assert await _scheduler(bench, slot_gap_seconds=60.0).run_due() == pytest.approx(30, abs=1)
    assert await _scheduler(bench, slot_gap_seconds=5.0).run_due() == 5.0


async def test_a_due_schedule_fires_once(bench):
    await bench.apply(schedule_cron=EVERY_MINUTE)
    scheduler = _scheduler(bench, slot_gap_seconds=60.0)
    bench.clock.move(seconds=30)
    assert await scheduler.run_due() == 0.0
    assert await scheduler.run_due() == pytest.approx(60, abs=1)
    _, assignments = await _claim(bench, limit=10)
    assert [assignment.workflow for assignment in assignments] == ["flow"]
    assert bench.metrics.registry.get_sample_value("rota_schedule_ticks_total", {"decision": "fired"}) == 1
    assert bench.metrics.registry.get_sample_value("rota_schedule_lateness_seconds_sum") == 0.0


async def test_ticks_that_were_missed_are_counted(bench):
    await bench.apply(schedule_cron=EVERY_MINUTE, misfire="skip")
    bench.clock.move(minutes=10)
    await _scheduler(bench).run_due()
    value = bench.metrics.registry.get_sample_value
    assert value("rota_schedule_ticks_total", {"decision": "skipped"}) >= 1
    assert value("rota_schedule_lateness_seconds_sum") == pytest.approx(570)


async def test_one_round_fires_everything_that_is_due(bench):
    for number in range(12):
        rules = [{"cron": EVERY_MINUTE} for _ in range(100)]
        await bench.apply(name=f"flow-{number}", schedules=rules, max_active_runs=0)
    bench.clock.move(seconds=30)
    assert await _scheduler(bench).run_due() == 0.0
    value = bench.metrics.registry.get_sample_value
    assert value("rota_schedule_ticks_total", {"decision": "fired"}) == 1200
    next_at, now = await bench.engine.find_next_due()
    assert next_at is not None
    assert next_at - now == timedelta(seconds=60)


async def test_a_due_retry_is_queued_again(bench):
    await bench.apply(
        tasks=[{"name": "a", "command": "false", "retry_count": 1, "retry_delay_seconds": 20}],
        run_at=bench.clock.now.isoformat(),
    )
    scheduler = _scheduler(bench, slot_gap_seconds=60.0)
    await scheduler.run_due()
    worker, (assignment,) = await _claim(bench)
    failed = Finished(assignment.task_run_id, assignment.attempt, "failed", exit_code=1, error_type="exit_code")
    await bench.engine.report(worker, [failed])
    assert await scheduler.run_due() == pytest.approx(20, abs=1)
    assert await bench.engine.claim(worker, limit=1) == ()
    bench.clock.move(seconds=20)
    assert await scheduler.run_due() == 0.0
    (again,) = await bench.engine.claim(worker, limit=1)
    assert (again.task_run_id, again.attempt) == (assignment.task_run_id, assignment.attempt + 1)


async def test_a_large_map_gets_all_of_its_items(bench, monkeypatch):
    monkeypatch.setattr(expand, "ITEMS_AT_ONCE", 2)
    each = {"name": "each", "command": "true", "map_over": list(range(7))}
    await bench.apply(run_at=bench.clock.now.isoformat(), tasks=[each])
    scheduler = _scheduler(bench, slot_gap_seconds=60.0)
    while not await scheduler.run_due():
        pass
    _, assignments = await _claim(bench, limit=10)
    assert sorted(assignment.map_index for assignment in assignments) == list(range(7))


async def test_what_a_lost_worker_held_is_given_to_another(bench):
    await bench.apply(run_at=bench.clock.now.isoformat())
    await _scheduler(bench).run_due()
    _, (assignment,) = await _claim(bench)
    bench.clock.move(seconds=29)
    assert await _duty(bench, "reap_attempts").run_once() == 0
    bench.clock.move(seconds=2)
    assert await _duty(bench, "reap_attempts").run_once() == 1
    assert await _duty(bench, "reap_workers").run_once() == 1
    assert bench.metrics.registry.get_sample_value("rota_lost_attempts_total") == 1
    _, (again,) = await _claim(bench)
    assert again.task_run_id == assignment.task_run_id


async def test_a_run_over_its_time_is_cancelled(bench):
    await bench.apply(run_at=bench.clock.now.isoformat(), run_timeout_seconds=60)
    await _scheduler(bench).run_due()
    duty = _duty(bench, "reap_runs")
    assert await duty.run_once() == 0
    bench.clock.move(seconds=61)
    assert await duty.run_once() == 1
    _, assignments = await _claim(bench)
    assert assignments == ()


async def test_what_ended_long_ago_is_deleted(bench):
    await bench.apply(run_at=bench.clock.now.isoformat())
    await _scheduler(bench).run_due()
    worker, (assignment,) = await _claim(bench)
    await bench.engine.report(worker, [Finished(assignment.task_run_id, assignment.attempt, "success", exit_code=0)])
    await bench.engine.leave(worker)
    bench.clock.move(seconds=3599)
    duty = _duty(bench, "prune")
    assert await duty.run_once() == 0
    bench.clock.move(seconds=2)
    assert await duty.run_once() == 2


async def test_a_batch_duty_goes_on_until_nothing_is_left():
    left = [500, 500, 3]

    async def run_batch():
        return left.pop(0) if left else 0

    assert await BatchDuty("x", 1.0, run_batch).run_once() == 1003
    assert left == []


async def test_a_batch_duty_without_an_end_lets_others_have_their_turn():
    calls = []

    async def run_batch():
        calls.append(1)
        return 1

    assert await BatchDuty("x", 1.0, run_batch).run_once() == MOST_BATCHES == len(calls)
