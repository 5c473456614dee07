"""Commands on approvals."""

from __future__ import annotations

import click

from rota.cli.options import show, with_client, write_table
from rota.client.http import Client

COLUMNS = ("id", "workflow", "task", "message", "approvers", ("until", "due_at"))


@click.group()
def approval() -> None:
    """List what waits for a decision, and decide."""


@approval.command("list")
@click.option("--workflow", help="only of this workflow")
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True)
@with_client
def list_approvals(client: Client, workflow: str | None, limit: int) -> None:
    """List what waits for somebody's decision, the newest first."""
    answer = client.get("/approvals", {"workflow": workflow, "limit": limit})
    show(answer, lambda: write_table(answer["items"], COLUMNS, empty="nothing waits for a decision"))


@approval.command()
@click.argument("task_run_id", metavar="TASK_RUN")
@click.option("--reason", default="", help="kept in the history and in the task's output")
@with_client
def approve(client: Client, task_run_id: str, reason: str) -> None:
    """Approve: the task succeeds, and what comes after it goes on."""
    _decide(client, task_run_id, "approve", reason)


@approval.command()
@click.argument("task_run_id", metavar="TASK_RUN")
@click.option("--reason", default="", help="kept in the history and in the task's output")
@with_client
def reject(client: Client, task_run_id: str, reason: str) -> None:
    """Reject: the task fails."""
    _decide(client, task_run_id, "reject", reason)


def _decide(client: Client, task_run_id: str, word: str, reason: str) -> None:
    answer = client.post(f"/task-runs/{task_run_id}/{word}", {"reason": reason})
    show(answer, f"task run {task_run_id} is {answer['decision']} by {answer['by']}")
