"""Container jobs, from the command line to a real Podman service."""

from __future__ import annotations

import re

from tests.acceptance.processes import wait_until
from tests.servers.podman import IMAGE, open_podman


def test_a_container_job(start):
    with open_podman() as socket:
        server = start("--container-socket", socket)
        # The service makes its socket a moment after its start; a worker that came first asks again for each task.
        container = {"image": IMAGE, "command": "echo from $ROTA_TASK", "network": "none", "pull": "never"}
        server.define({"name": "box", "container": container, "retry_count": 20, "retry_delay_seconds": 0.2})
        found = server.wait_for_run(server.trigger())
        assert server.read_log(found["box"]["id"]) == "from box\n"


def test_without_an_engine_the_reason_is_told(start):
    server = start()
    server.define({"name": "box", "container": {"image": IMAGE}})
    run_id = server.trigger()
    run = server.get(f"/workflow-runs/{run_id}")
    (row,) = run["task_runs"]
    reasons = wait_until(lambda: server.get(f"/task-runs/{row['id']}/explain"), "an explanation")
    assert re.search("container", str(reasons)), reasons
