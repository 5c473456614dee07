"""A wait, a wait for HTTP and an approval, with real processes: over a crash, and decided from the command line."""

from __future__ import annotations

import json

from tests.acceptance.processes import wait_until


def _by_name(server, run_id):
    return {row["task"]: row for row in server.get(f"/workflow-runs/{run_id}")["task_runs"]}


def test_what_waits_survives_a_crash_and_a_person_decides(start, rota):
    server = start(ROTA_HTTP_ALLOW="127.0.0.0/8")
    server.define(
        {"name": "pause", "wait": {"seconds": 1}},
        {"name": "ready", "wait": {"http": {"url": f"{server.url}/healthz", "interval_seconds": 1}}},
        {"name": "gate", "approval": {"message": "Ship it?", "approvers": ["local"]}, "depends_on": ["pause", "ready"]},
        {"name": "long", "wait": {"seconds": 3}},
        {"name": "ship", "command": "echo {{ tasks.gate.output.reason }}", "depends_on": ["gate", "long"]},
    )
    run_id = server.trigger()
    wait_until(lambda: _by_name(server, run_id)["gate"]["holder"] == "approval", "the approval to be open")
    server.kill()
    again = start("--port", server.port)
    listed = rota("approval", "list", "--server", again.url, "--json")
    (item,) = json.loads(listed.stdout)["items"]
    assert (item["message"], item["may_decide"]) == ("Ship it?", True)
    decided = rota("approval", "approve", item["id"], "--reason", "all green", "--server", again.url)
    assert decided.returncode == 0, decided.stderr
    found = again.wait_for_run(run_id)
    assert again.read_log(found["ship"]["id"]) == "all green\n"
    assert {row["attempt"] for row in found.values()} == {1}
    late = rota("approval", "reject", item["id"], "--server", again.url)
    assert late.returncode == 5
    assert "approved by local already" in late.stderr
    assert again.terminate() == 0
    assert "Traceback" not in again.errors
