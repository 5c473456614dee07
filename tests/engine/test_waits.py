"""Waits for a time: without a worker, over restarts, bounded by the task's timeout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.engine.stage import START, Stage, open_node, task


async def _start(stage: Stage, wait: dict[str, Any], params: dict[str, Any] | None = None, **fields: Any) -> str:
    workflow_id = await stage.define(task("pause", wait=wait, **fields), task("b", "pause"))
    return await stage.submit(workflow_id, params=params or {})


async def _row(stage: Stage, run_id: str) -> Any:
    return (await stage.task_rows(run_id))["pause"]


async def test_a_duration(stage: Stage):
    run_id = await _start(stage, {"seconds": 90})
    row = await _row(stage, run_id)
    assert (row.status, row.holder, row.worker_id, row.due_at) == (
        *("running", "wait", None),
        START + timedelta(seconds=90),
    )
    assert await stage.claim(await stage.register()) == []
    found = await stage.engine.explain_task_run(row.id)
    assert (found.code, found.sentence, found.next_check_at) == ("waiting", "it waits for 90 seconds", row.due_at)
    stage.clock.advance(89.9)
    assert await stage.engine.serve_due() == 0
    stage.clock.advance(0.1)
    assert await stage.engine.serve_due() == 1
    assert await stage.work(await stage.register()) == ["b"]
    assert await stage.run_status(run_id) == "success"


async def test_an_instant_from_a_template(stage: Stage):
    run_id = await _start(stage, {"until": "{{ params.at }}"}, {"at": "2026-01-05T14:00:30.000001+01:00"})
    row = await _row(stage, run_id)
    assert row.due_at == datetime(2026, 1, 5, 13, 0, 30, 1, tzinfo=UTC)
    assert row.waiting_for == {"until": "2026-01-05T13:00:30.000001Z"}
    assert (await stage.engine.explain_task_run(row.id)).sentence == "it waits until 2026-01-05T13:00:30.000001Z"
    stage.clock.advance(3631)
    assert await stage.engine.serve_due() == 1
    assert (await _row(stage, run_id)).status == "success"


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00+14:00", "2020-01-01T00:00:00Z"])
async def test_what_is_past_is_over_at_once(stage: Stage, until: str):
    run_id = await _start(stage, {"until": until}, timeout_seconds=5)
    assert await stage.engine.serve_due() == 1
    assert (await _row(stage, run_id)).status == "success"


async def test_the_end_of_time_is_kept(stage: Stage):
    run_id = await _start(stage, {"until": "9999-12-31T23:59:59-12:00"})
    assert (await _row(stage, run_id)).due_at.year == 9999


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("tomorrow", "wait.until: expected an instant such as"),
        ("2030-01-01T00:00:00", "wait.until: expected an instant such as"),
        (5, "wait.until: expected an instant such as"),
    ],
)
async def test_what_is_no_instant_fails_the_task(stage: Stage, value: Any, reason: str):
    run_id = await _start(stage, {"until": "{{ params.at }}"}, {"at": value}, retry_count=3)
    row = await _row(stage, run_id)
    assert (row.status, row.error_type) == ("failed", "bad_task")
    assert reason in row.error
    assert await stage.run_status(run_id) == "failed"


@pytest.mark.parametrize("wait", [{"seconds": 90}, {"until": "2026-01-05T12:01:30Z"}])
async def test_its_timeout_bounds_it_and_its_retries_wait_anew(stage: Stage, wait: dict[str, Any]):
    run_id = await _start(stage, wait, timeout_seconds=60, retry_count=1, retry_delay_seconds=0)
    stage.clock.advance(60)
    assert await stage.engine.serve_due() == 1
    row = await _row(stage, run_id)
    assert (row.status, row.attempt, row.failure_count) == ("running", 2, 1)
    stage.clock.advance(60)
    await stage.engine.serve_due()
    row = await _row(stage, run_id)
    # The instant has come meanwhile; so many seconds have not.
    expected = ("failed", "timeout") if "seconds" in wait else ("success", None)
    assert (row.status, row.error_type) == expected
    if row.error:
        assert row.error == "it did not end within 60 seconds"


async def test_a_timeout_as_long_as_the_wait_lets_it_succeed(stage: Stage):
    run_id = await _start(stage, {"seconds": 0.1}, timeout_seconds=0.1)
    stage.clock.advance(0.1)
    assert await stage.engine.serve_due() == 1
    assert (await _row(stage, run_id)).status == "success"


async def test_another_node_ends_it(stage: Stage):
    run_id = await _start(stage, {"seconds": 90})
    stage.clock.advance(91)
    async with open_node(stage.url, stage.clock) as other:
        assert await other.engine.serve_due() == 1
        assert await other.engine.serve_due() == 0
    assert (await stage.statuses(run_id)) == {"pause": "success", "b": "queued"}


async def test_a_cancel_ends_it_at_once_and_a_retry_starts_it_anew(stage: Stage):
    run_id = await _start(stage, {"seconds": 90}, timeout_seconds=30)
    stage.clock.advance(31)
    await stage.engine.serve_due()
    assert await stage.run_status(run_id) == "failed"
    await stage.engine.retry_run(run_id)
    row = await _row(stage, run_id)
    assert (row.status, row.attempt, row.due_at) == ("running", 2, stage.clock.now + timedelta(seconds=30))
    await stage.engine.cancel_run(run_id)
    assert await stage.statuses(run_id) == {"pause": "cancelled", "b": "cancelled"}
    stage.clock.advance(100)
    assert await stage.engine.serve_due() == 0
