"""The worker's life: claims within its concurrency, a source that is away, lost leases, drain and farewell."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.errors import Unavailable
from rota.domain.work import AttemptKey, Finished, ReportResult
from rota.outbound import backoff
from rota.worker import session
from rota.worker.options import WorkerOptions
from rota.worker.service import Worker
from tests.worker.driver import ScriptedSource, make_assignment, wait_until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    """Waits after failures are as long as a test can bear."""
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(backoff, "LONGEST_SECONDS", 0.05)


def key(number: int) -> AttemptKey:
    return AttemptKey(f"task-run-{number}", 1)


async def until_running(source: ScriptedSource, count: int) -> None:
    await source.until(lambda: bool(source.renewals) and len(source.renewals[-1]) == count)


async def test_registers_with_what_it_is(source, start_worker):
    await start_worker(name="w", queues=("a", "b"), labels={"gpu": "1"}, concurrency=7, kinds=("shell",))
    said = source.registrations[0]
    assert (said.name, said.queues, dict(said.labels), said.concurrency) == ("w", ("a", "b"), {"gpu": "1"}, 7)
    assert said.kinds == ("shell",)


async def test_never_holds_more_than_its_concurrency(source, start_worker):
    await start_worker(concurrency=4)
    await source.offer(*(make_assignment(number, command="true") for number in range(100)))
    await source.until_finished(100)
    assert source.most_held <= 4
    assert {one.task_run_id for one in source.finished} == {f"task-run-{number}" for number in range(100)}
    assert len(source.finished) == 100


async def test_a_report_brings_the_next_assignment(source, start_worker):
    """The successor comes back with the answer to the report: no claim of its own."""
    await start_worker(concurrency=1)
    refuse = source.refuse
    chain = [make_assignment(number, command="true") for number in range(2, 6)]

    def release_next(report):
        if isinstance(report, Finished) and chain:
            source.queue.append(chain.pop(0))
        return refuse(report)

    source.refuse = release_next
    await source.offer(make_assignment(1, command="true"))
    await source.until_finished(5)
    assert source.calls.count("claim") == 1


async def test_leases_of_all_that_runs_are_renewed_together(source, start_worker):
    await start_worker(concurrency=3)
    await source.offer(*(make_assignment(number, command="sleep 600") for number in range(3)))
    await source.until(lambda: any(set(renewal) == {key(0), key(1), key(2)} for renewal in source.renewals))


async def test_survives_a_source_that_is_away_at_the_start(source, start_worker):
    source.is_away = True
    starting = asyncio.create_task(start_worker())
    await source.until(lambda: source.calls.count("register") >= 3)
    source.is_away = False
    await starting
    await source.offer(make_assignment(1, command="true"))
    assert (await source.until_finished())[0].status == "success"


async def test_buffers_while_the_source_is_away_and_delivers_in_order(source, start_worker, tmp_path):
    gate = tmp_path / "gate"
    worker = await start_worker(concurrency=4)
    command = f"echo before; while [ ! -e {gate} ]; do sleep 0.01; done; echo after"
    await source.offer(*(make_assignment(number, command=command) for number in range(4)))
    await source.until(lambda: all(source.log(number) == b"before\n" for number in range(4)))
    source.is_away = True
    gate.touch()
    await wait_until(lambda: worker.finished_count >= 4)
    failed = len(source.calls)
    await source.until(lambda: len(source.calls) > failed + 5)
    assert source.finished == []
    assert not worker.is_healthy
    source.is_away = False
    await source.until_finished(4)
    for number in range(4):
        assert source.log(number) == b"before\nafter\n"
        own = [item for item in source.reports if item.task_run_id == f"task-run-{number}"]
        assert isinstance(own[-1], Finished)
    await source.until(lambda: worker.is_healthy)


async def test_logs_beyond_the_budget_give_way_results_do_not(source, start_worker):
    worker = await start_worker(
        concurrency=2, max_buffered_log_bytes=100_000, max_log_tail_bytes=1000, log_flush_seconds=0.01
    )
    source.is_away = True
    command = (
        "i=0; while [ $i -lt 100 ]; do head -c 9000 /dev/zero | tr '\\0' x; i=$((i+1)); sleep 0.005; done; echo end"
    )
    source.is_away = False
    await source.offer(make_assignment(1, command=command))
    await until_running(source, 1)
    source.is_away = True
    await wait_until(lambda: worker.finished_count >= 1)
    source.is_away = False
    await source.until_finished()
    log = source.log()
    assert len(log) < 400_000
    assert log.endswith(b"end\n")
    assert b"bytes of the log left out here]" in log


async def test_an_unknown_incarnation_registers_anew_and_gives_up_what_it_lost(source, start_worker):
    await start_worker(concurrency=2)
    await source.offer(make_assignment(1, command="sleep 600"), make_assignment(2, command="sleep 600"))
    await until_running(source, 2)
    source.lost = {key(1)}
    source.refused.add("incarnation-1")
    source.refuse = lambda report: ReportResult(False, "late", "no longer yours")
    finished = (await source.until_finished())[0]
    assert len(source.registrations) == 2
    assert (finished.task_run_id, finished.status) == ("task-run-1", "cancelled")
    assert finished.error == "the lease was lost"
    await source.until(lambda: source.renewals[-1] == (key(2),))


async def test_a_worker_that_wakes_after_its_lease_asks_before_it_reports(source, start_worker, monkeypatch):
    """As after SIGSTOP or a pause of the machine: the clock has jumped, so the first word is a renewal."""
    source.heartbeat_interval_seconds = 3600.0
    jump = [0.0]
    real = session.read_clock
    worker = await start_worker()
    worker.session._clock = lambda: real() + jump[0]
    await source.offer(make_assignment(1, command="true"))
    await source.until_finished(1)
    assert source.renewals == []
    jump[0] = source.lease_seconds + 1
    await source.offer(make_assignment(2, command="true"))
    await source.until_finished(2)
    assert len(source.renewals) == 1
    assert source.calls.index("renew") < len(source.calls) - 1 - source.calls[::-1].index("report")


async def test_cancel_orders_arrive_at_once(source, start_worker):
    source.heartbeat_interval_seconds = 3600.0
    await start_worker()
    await source.offer(make_assignment(1, command="echo up; exec sleep 600"))
    await source.until(lambda: source.log() == b"up\n")
    source.cancel = {key(1)}
    source.order()
    assert (await source.until_finished())[0].status == "cancelled"


async def test_a_cancel_that_overtakes_its_assignment_counts(source, start_worker, tmp_path):
    source.heartbeat_interval_seconds = 3600.0
    await start_worker()
    source.cancel = {key(1)}
    source.order()
    await source.until(lambda: len(source.renewals) == 1)
    await source.offer(make_assignment(1, command=f"touch {tmp_path}/ran"))
    assert (await source.until_finished())[0].status == "cancelled"
    assert not (tmp_path / "ran").exists()


async def test_stop_lets_running_tasks_end(source, start_worker, tmp_path):
    gate = tmp_path / "gate"
    worker = await start_worker()
    await source.offer(make_assignment(1, command=f"while [ ! -e {gate} ]; do sleep 0.01; done; echo done"))
    await until_running(source, 1)
    worker.stop()
    gate.touch()
    await asyncio.wait_for(worker.running, 30)
    assert [(one.task_run_id, one.status) for one in source.finished] == [("task-run-1", "success")]
    assert source.log() == b"done\n"
    assert source.left == [()]


async def test_what_a_last_claim_brings_is_handed_back_unbegun(source, start_worker, tmp_path):
    worker = await start_worker()
    await source.until(lambda: "claim" in source.calls)
    worker.stop()
    await source.offer(make_assignment(1, command=f"touch {tmp_path}/ran"))
    await asyncio.wait_for(worker.running, 30)
    assert source.finished == []
    assert source.left == [(key(1),)] or len(source.queue) == 1
    assert not (tmp_path / "ran").exists()


async def test_what_does_not_end_in_time_is_handed_back(source, start_worker):
    worker = await start_worker(drain_seconds=0.05)
    await source.offer(make_assignment(1, command="echo started; exec sleep 600"))
    await source.until(lambda: source.log() == b"started\n")
    worker.stop()
    await asyncio.wait_for(worker.running, 30)
    assert source.finished == []
    assert source.left == [(key(1),)]
    assert source.log() == b"started\n"


async def test_a_second_stop_kills_at_once(source, start_worker):
    worker = await start_worker(drain_seconds=3600.0, grace_seconds=3600.0)
    await source.offer(make_assignment(1, command="trap '' TERM; sleep 600"))
    await until_running(source, 1)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(worker.running, 30)
    assert source.left == [(key(1),)]


async def test_a_drain_order_stops_claims_and_nothing_else(source, start_worker):
    await start_worker(concurrency=2)
    await source.offer(make_assignment(1, command="sleep 600"))
    await until_running(source, 1)
    source.is_draining = True
    count = len(source.renewals)
    await source.until(lambda: len(source.renewals) > count + 1)
    # The claim that was under way before the order may still bring one.
    await source.offer(make_assignment(2, command="true"))
    await source.until_finished(1)
    await source.offer(make_assignment(3, command="true"))
    count = len(source.renewals)
    await source.until(lambda: len(source.renewals) > count + 3)
    assert len(source.queue) == 1
    source.is_draining = False
    await source.until_finished(2)
    assert {one.task_run_id for one in source.finished} == {"task-run-2", "task-run-3"}


async def test_leaves_even_if_the_source_does_not_answer(source, start_worker):
    worker = await start_worker(farewell_seconds=0.1)
    source.is_away = True
    worker.stop()
    await asyncio.wait_for(worker.running, 30)
    assert source.left == []


async def test_stop_before_it_could_register(source):
    source.is_away = True
    worker = Worker(source, WorkerOptions())
    running = asyncio.create_task(worker.run())
    await source.until(lambda: "register" in source.calls)
    worker.stop()
    await asyncio.wait_for(running, 30)
    assert source.left == []


async def test_an_unexpected_error_of_the_source_does_not_end_the_worker(source, start_worker):
    await start_worker()
    claim = source.claim
    errors = [RuntimeError("a bug"), Unavailable("away"), OSError("reset")]

    async def fail_first(worker, *, limit, wait_seconds):
        if errors:
            raise errors.pop()
        return await claim(worker, limit=limit, wait_seconds=wait_seconds)

    source.claim = fail_first
    await source.offer(make_assignment(1, command="true"))
    await source.until_finished(1)
    await source.offer(make_assignment(2, command="true"))
    await source.until_finished(2)
