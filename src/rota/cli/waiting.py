"""Waiting for a run to end, for scripts and impatient people."""

from __future__ import annotations

import time

import click

from rota.cli.options import show
from rota.client.http import Client
from rota.domain.states import RUN_FINAL, RunState

EXIT_FAILURE = 1
LONGEST_PAUSE_SECONDS = 2.0
WAIT_OPTION = click.option("--wait", "is_waiting", is_flag=True, help="wait for the end; fail unless it is success")


def wait_for_run(client: Client, run_id: str) -> int:
    """The exit code of a run: 0 for success, once it has ended."""
    pause_seconds = 0.05
    while True:
        run = client.get(f"/workflow-runs/{run_id}", {"task_runs": False})
        if run["status"] in RUN_FINAL:
            show(run, f"run {run_id} ended as {run['status']}")
            return 0 if run["status"] == RunState.SUCCESS else EXIT_FAILURE
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, LONGEST_PAUSE_SECONDS)
