"""Processes die at the worst moment; the work is finished all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.acceptance.processes import wait_until


def _hold(home: Path) -> dict[str, Any]:
    """A task that notes each of its starts, and ends when it is told to."""
    command = f"echo $ROTA_ATTEMPT >> {home}/starts; while [ ! -e {home}/go ]; do sleep 0.05; done; echo done"
    return {"name": "hold", "command": command}


def _after(home: Path) -> dict[str, Any]:
    return {"name": "after", "command": f"echo $ROTA_ATTEMPT >> {home}/ends", "depends_on": ["hold"]}


def _starts(home: Path) -> list[str]:
    file = home / "starts"
    return file.read_text().split() if file.exists() else []


def test_a_killed_server_finishes_its_run_after_the_restart(start, home):
    server = start()
    server.define(_hold(home), _after(home))
    run_id = server.trigger()
    wait_until(lambda: _starts(home) == ["1"], "the task to run")
    server.kill()
    again = start()
    wait_until(lambda: _starts(home) == ["1", "2"], "the task to be tried again")
    (home / "go").touch()
    found = again.wait_for_run(run_id)
    assert found["hold"]["attempt"] == 2
    assert found["hold"]["lost_count"] == 1
    assert found["hold"]["failure_count"] == 0
    assert (home / "ends").read_text() == "1\n"
    assert again.read_log(found["hold"]["id"]) == "done\n"


def test_a_worker_keeps_its_task_while_the_server_is_killed_and_restarted(start, start_worker, home):
    server = start("--workers", "0", ROTA_LEASE="30s")
    start_worker(server)
    server.define(_hold(home), _after(home))
    run_id = server.trigger()
    wait_until(lambda: _starts(home) == ["1"], "the task to run")
    server.kill()
    (home / "go").touch()
    again = start("--workers", "0", "--port", server.port, ROTA_LEASE="30s")
    found = again.wait_for_run(run_id)
    assert found["hold"]["attempt"] == 1
    assert again.read_log(found["hold"]["id"]) == "done\n"
    assert _starts(home) == ["1"]


def test_what_a_killed_worker_held_runs_elsewhere(start, start_worker, home):
    server = start("--workers", "0", ROTA_LEASE="20s")
    first = start_worker(server, "--worker-id", "first")
    server.define(_hold(home), _after(home))
    run_id = server.trigger()
    wait_until(lambda: _starts(home) == ["1"], "the task to run")
    start_worker(server, "--worker-id", "second")
    first.kill()
    # The broken connection tells, long before the lease ends.
    wait_until(lambda: _starts(home) == ["1", "2"], "the other worker to take over", timeout_seconds=15)
    (home / "go").touch()
    found = server.wait_for_run(run_id)
    assert found["hold"]["attempt"] == 2
    (known,) = server.get("/workers?status=active")["items"]
    assert known["name"] == "second"


def test_a_schedule_goes_on_after_a_crash_and_makes_no_tick_twice(start):
    server = start()
    server.define({"name": "a", "command": "true"}, schedule_cron="* * * * * *", misfire="all", grace_seconds=0)
    wait_until(lambda: len(_ticks(server)) >= 2, "two runs")
    server.kill()
    again = start()
    before = set(_ticks(again))
    wait_until(lambda: len(set(_ticks(again)) - before) >= 2, "further runs")
    ticks = _ticks(again)
    assert len(set(ticks)) == len(ticks)


def _ticks(server) -> list[str]:
    return [run["logical_date"] for run in server.get("/workflow-runs?workflow=flow&limit=500")["items"]]
