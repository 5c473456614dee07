"""report: how attempts end, once and only once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from rota.domain.ids import make_uuid7
from rota.domain.work import ErrorType, Finished, LogChunk, Report, WorkerIdentity
from rota.store.attempts import read_log
from rota.store.tables import task_runs
from tests.engine.stage import START, Stage, task

UNKNOWN = make_uuid7(1_700_000_000_000, b"0123456789")


async def _row(stage: Stage, task_run_id: str):
    (row,) = await stage.rows(select(task_runs).where(task_runs.c.id == task_run_id))
    return row


async def test_success_ends_the_run(stage: Stage):
    run_id = await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    stage.clock.advance(5)
    (result,) = await stage.finish(worker, [item], exit_code=0, output={"n": [1, None, "é"]}, usage={"cpu_seconds": 2})
    assert result.is_accepted
    row = await _row(stage, item.task_run_id)
    assert (row.status, row.exit_code, row.output, row.usage) == (
        "success",
        0,
        {"n": [1, None, "é"]},
        {"cpu_seconds": 2},
    )
    assert row.finished_at == START + timedelta(seconds=5)
    run = await stage.run_row(run_id)
    assert (run.status, run.remaining, run.finished_at) == ("success", 0, row.finished_at)
    assert [move[:2] for move in await stage.history(run_id)] == [(None, "running"), ("running", "success")]


async def test_failure_without_retries_fails_the_run(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"))
    worker = await stage.register()
    assert await stage.work(worker, {"a": "failed"}) == ["a"]
    assert await stage.statuses(run_id) == {"a": "failed", "b": "upstream_failed"}
    assert await stage.run_status(run_id) == "failed"
    row = (await stage.task_rows(run_id))["a"]
    assert (row.error_type, row.error, row.exit_code, row.failure_count) == ("exit_code", "it failed", 1, 1)


async def test_retries_wait_longer_each_time(stage: Stage):
    run_id = await stage.start(task("a", retry_count=3, retry_delay_seconds=10))
    worker = await stage.register()
    waits = []
    for attempt in range(1, 5):
        (item,) = await stage.claim(worker)
        assert (item.attempt, item.try_number) == (attempt, attempt)
        await stage.finish(worker, [item], "failed", error_type="exit_code", exit_code=3)
        row = await _row(stage, item.task_run_id)
        if row.status == "retrying":
            waits.append((row.due_at - stage.clock.now).total_seconds())
            stage.clock.advance(waits[-1] - 0.001)
            assert await stage.engine.release_due() == 0
            assert (await stage.engine.find_next_due())[0] == row.due_at
            stage.clock.advance(0.001)
            assert await stage.engine.release_due() == 1
    assert waits == [10, 20, 40]
    assert await stage.run_status(run_id) == "failed"


async def test_a_retry_without_delay_is_queued_at_once(stage: Stage):
    run_id = await stage.start(task("a", retry_count=2, retry_delay_seconds=0))
    worker = await stage.register()
    assert await stage.work(worker, {"a": ["failed", "failed", "success"]}) == ["a", "a", "a"]
    assert await stage.run_status(run_id) == "success"
    moves = [move[:2] for move in await stage.history(await stage.task_run_id(run_id, "a"))]
    assert moves.count(("running", "retrying")) == moves.count(("retrying", "queued")) == 2


async def test_a_server_may_ask_for_a_longer_wait(stage: Stage):
    await stage.start(task("a", http={"url": "https://example.com/"}, retry_count=2, retry_delay_seconds=10))
    worker = await stage.register(kinds=("http",))
    for asked, waited in ((300, 300), (3, 20)):
        (item,) = await stage.claim(worker)
        await stage.finish(
            worker, [item], "failed", error_type="http_error", http_status=503, retry_after_seconds=asked
        )
        row = await _row(stage, item.task_run_id)
        assert (row.due_at - stage.clock.now).total_seconds() == waited
        stage.clock.advance(waited)
        await stage.engine.release_due()


async def test_what_retry_on_does_not_name_is_not_tried_again(stage: Stage):
    await stage.start(task("a", retry_count=5, retry_on=[75]), task("b", retry_count=5, retry_on=[75]))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    await stage.finish(worker, [items["a"]], "failed", error_type="exit_code", exit_code=75)
    await stage.finish(worker, [items["b"]], "failed", error_type="exit_code", exit_code=1)
    assert (await _row(stage, items["a"].task_run_id)).status == "retrying"
    assert (await _row(stage, items["b"].task_run_id)).status == "failed"


async def test_a_task_may_skip_itself(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"), task("c", "a", trigger_rule="none_failed"))
    worker = await stage.register()
    assert await stage.work(worker, {"a": "skipped"}) == ["a", "c"]
    assert await stage.statuses(run_id) == {"a": "skipped", "b": "skipped", "c": "success"}
    assert await stage.run_status(run_id) == "success"


async def test_a_late_result_is_refused_and_kept_in_history(stage: Stage):
    await stage.start(task("a"))
    first, second = await stage.register(), await stage.register()
    (item,) = await stage.claim(first)
    stage.clock.advance(31)
    assert await stage.engine.reap_attempts() == 1
    (again,) = await stage.claim(second)
    (result,) = await stage.finish(first, [item], output="late")
    assert (result.is_accepted, result.code) == (False, "late")
    row = await _row(stage, item.task_run_id)
    assert (row.status, row.attempt, row.incarnation) == ("running", 2, second.incarnation)
    last = (await stage.history(item.task_run_id))[-1]
    assert last == (
        "running",
        "running",
        {"event": "ignored late result", "attempt": 1, "reported": "success", "incarnation": first.incarnation},
    )
    (landed,) = await stage.finish(second, [again])
    assert landed.is_accepted
    (result,) = await stage.finish(second, [again])
    assert result.code == "late"


async def test_nobody_else_can_end_an_attempt(stage: Stage):
    await stage.start(task("a"))
    worker, stranger = await stage.register(), await stage.register()
    (item,) = await stage.claim(worker)
    wrong = [
        (stranger, item.task_run_id, 1),
        (WorkerIdentity(worker.worker_id, stranger.incarnation), item.task_run_id, 1),
        (worker, item.task_run_id, 0),
        (worker, item.task_run_id, 2),
        (worker, item.task_run_id, -1),
    ]
    for status in ("success", "failed", "cancelled", "skipped"):
        for who, task_run_id, attempt in wrong:
            reply = await stage.engine.report(who, [Finished(task_run_id, attempt, status)])
            assert [result.code for result in reply.results] == ["late"]
    assert (await _row(stage, item.task_run_id)).status == "running"


@pytest.mark.parametrize("attempt", [2**31, 2**63, -(2**40)])
async def test_an_attempt_that_cannot_be_is_late_too(stage: Stage, attempt: int):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    reply = await stage.engine.report(
        worker,
        [
            Finished(item.task_run_id, attempt, "success"),
            Finished(item.task_run_id, attempt, "failed"),
            LogChunk(item.task_run_id, attempt, 0, b"x"),
        ],
    )
    assert [result.is_accepted for result in reply.results] == [False] * 3
    assert (await stage.finish(worker, [item]))[0].is_accepted


@pytest.mark.parametrize("task_run_id", [UNKNOWN, "", "no-such-thing", "0" * 36, "a\0b", "x" * 10_000])
async def test_an_unknown_task_run_is_told(stage: Stage, task_run_id: str):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    reply = await stage.engine.report(
        worker,
        [
            Finished(task_run_id, 1, "success"),
            Finished(item.task_run_id, 1, "success"),
            Finished(task_run_id, 1, "failed"),
            LogChunk(task_run_id, 1, 0, b"x"),
        ],
    )
    assert [result.is_accepted for result in reply.results] == [False, True, False, False]
    assert reply.results[0].code == reply.results[2].code == "unknown"


async def test_the_same_result_twice_in_one_batch(stage: Stage):
    run_id = await stage.start(task("a"), task("b", "a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    ends: list[Report] = [Finished(item.task_run_id, 1, status) for status in ("success", "success", "failed")]
    results = (await stage.engine.report(worker, ends)).results
    assert [(result.is_accepted, result.code) for result in results] == [
        (True, "ok"),
        (False, "late"),
        (False, "late"),
    ]
    assert await stage.statuses(run_id) == {"a": "success", "b": "queued"}


async def test_the_answer_may_bring_new_work(stage: Stage):
    await stage.start(task("a"), task("b", "a"), task("c", "b"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    for following in ("b", "c"):
        reply = await stage.engine.report(worker, [Finished(item.task_run_id, 1, "success")], claim=1)
        (item,) = reply.assignments
        assert item.task == following


async def test_an_output_may_have_a_megabyte(stage: Stage):
    await stage.start(task("a"))
    worker = await stage.register()
    (item,) = await stage.claim(worker)
    assert (await stage.finish(worker, [item], output="x" * 999_998))[0].code == "ok"
    assert len((await _row(stage, item.task_run_id)).output) == 999_998


@pytest.mark.parametrize("output", ["x" * 2_000_000, "é" * 600_000, "\ud800", object()])
async def test_an_output_that_cannot_be_kept_fails_the_attempt(stage: Stage, output: object):
    run_id = await stage.start(task("a"), task("b"))
    worker = await stage.register()
    items = {item.task: item for item in await stage.claim(worker)}
    reply = await stage.engine.report(
        worker,
        [
            Finished(items["a"].task_run_id, 1, "success", output=output),
            Finished(items["b"].task_run_id, 1, "success", output="fine"),
        ],
    )
    assert [(result.is_accepted, result.code) for result in reply.results] == [(True, "bad_output"), (True, "ok")]
    row = await _row(stage, items["a"].task_run_id)
    assert (row.status, row.error_type, row.output) == ("failed", ErrorType.BAD_OUTPUT, None)
    assert await stage.run_status(run_id) == "failed"


async def test_logs_are_kept_once_and_in_order(stage: Stage):
    await stage.start(task("a"))
    worker, stranger = await stage.register(), await stage.register()
    (item,) = await stage.claim(worker)
    mine: list[Report] = [
        LogChunk(item.task_run_id, 1, 0, b"one\0\xff"),
        LogChunk(item.task_run_id, 1, 5, b"two"),
        LogChunk(item.task_run_id, 1, 0, b"one again"),
        LogChunk(item.task_run_id, 1, 1_000, b"after a gap"),
    ]
    assert all(result.is_accepted for result in (await stage.engine.report(worker, mine)).results)
    (refused,) = (await stage.engine.report(stranger, [LogChunk(item.task_run_id, 1, 8, b"not mine")])).results
    assert refused.code == "late"
    log = await stage.database.read(lambda tx: read_log(tx, item.task_run_id, 1))
    assert log == [(0, b"one\0\xff"), (5, b"two"), (1_000, b"after a gap")]
    last: list[Report] = [LogChunk(item.task_run_id, 1, 2_000, b"last"), Finished(item.task_run_id, 1, "success")]
    assert [result.code for result in (await stage.engine.report(worker, last)).results] == ["ok", "ok"]
    (late,) = (await stage.engine.report(worker, [LogChunk(item.task_run_id, 1, 3_000, b"too late")])).results
    assert late.code == "late"
    assert await stage.database.read(lambda tx: read_log(tx, item.task_run_id, 1, from_offset=1_500)) == [
        (2_000, b"last")
    ]
