"""Commands on runs and their logs."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.options import is_json, show, with_client, write_table, write_value
from rota.cli.waiting import WAIT_OPTION, wait_for_run
from rota.client.http import Client
from rota.domain.errors import NotFound

# What the server answers at most; an attempt keeps less.
MOST_LOG_BYTES = 5_000_000
TASK_COLUMNS = ("task", "status", "attempt", "started_at", "finished_at", "error")


@click.group()
def runs() -> None:
    """List, show, cancel, retry, compare and explain runs."""


@click.command("list")
@click.option("--status", multiple=True, help="only in this state; may be repeated")
@click.option("--workflow", help="only of this workflow")
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True)
@with_client
def list_runs(client: Client, status: tuple[str, ...], workflow: str | None, limit: int) -> None:
    """List runs, the newest first."""
    answer = client.get("/workflow-runs", {"status": status, "workflow": workflow, "limit": limit})
    columns = ("id", "workflow", "status", "trigger", "started_at", "finished_at")
    show(answer, lambda: write_table(answer["items"], columns, empty="no runs"))


runs.add_command(list_runs)


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@with_client
def show_run(client: Client, run_id: str) -> None:
    """Show one run and its tasks."""
    answer = client.get(f"/workflow-runs/{run_id}")
    show(answer, lambda: _write_run(answer))


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--reason", default="", help="kept in the history")
@with_client
def cancel(client: Client, run_id: str, reason: str) -> None:
    """Cancel a run: what waits is cancelled, what runs is killed."""
    answer = client.post(f"/workflow-runs/{run_id}/cancel", {"reason": reason})
    show(answer, f"run {run_id} is being cancelled")


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--task", "tasks", multiple=True, help="this task and everything below it; may be repeated")
@click.option("--whole", is_flag=True, help="everything, in a new run")
@click.option("--version", help="of the workflow: same (default), current, or a number")
@click.option("--note", help="a word about why, for a new run")
@WAIT_OPTION
@with_client
def retry(
    client: Client, run_id: str, tasks: tuple[str, ...], whole: bool, is_waiting: bool, **facts: str | None
) -> int:
    """Try the failed tasks of a run again, and what depended on them; or a part of it, or all.

    What has succeeded is executed again in a new run.
    """
    version = facts["version"]
    body = {
        "tasks": list(tasks) or None,
        "whole": whole,
        "version": int(version) if version and version.isdecimal() else version,
        "note": facts["note"],
    }
    answer = client.post(f"/workflow-runs/{run_id}/retry", {name: value for name, value in body.items() if value})
    if is_waiting:
        return wait_for_run(client, answer["id"])
    show(answer, f"run {answer['id']} repeats {run_id}" if answer["rerun_of"] else f"run {run_id} goes on")
    return 0


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.argument("other_id", metavar="OTHER")
@with_client
def compare(client: Client, run_id: str, other_id: str) -> None:
    """Show two runs beside each other: parameters, versions, states and durations."""
    answer = client.get(f"/workflow-runs/{run_id}/compare/{other_id}")
    show(answer, lambda: _write_comparison(answer))


@runs.command()
@click.argument("run_id", metavar="RUN")
@with_client
def explain(client: Client, run_id: str) -> None:
    """Say why a run has not ended."""
    answer = client.get(f"/workflow-runs/{run_id}/explain")
    show(answer, lambda: _write_explanation(answer))


@click.command("logs")
@click.argument("run_id", metavar="RUN")
@click.argument("task", required=False)
@with_client
def show_logs(client: Client, run_id: str, task: str | None) -> None:
    """Print what the tasks of a run wrote; of one task exactly its bytes."""
    found = client.get(f"/workflow-runs/{run_id}")["task_runs"]
    chosen = [row for row in found if task in (None, row["task"], row["id"])]
    if not chosen:
        names = ", ".join(sorted({row["task"] for row in found}))
        raise NotFound(f"the run has no task {task}; it has {names}")
    for row in chosen:
        content = client.get_bytes(f"/task-runs/{row['id']}/logs", {"raw": True, "limit": MOST_LOG_BYTES})
        _print_log(row, content, is_alone=task is not None)


def _print_log(row: dict[str, Any], content: bytes, *, is_alone: bool) -> None:
    if is_json():
        text = content.decode("utf-8", "replace")
        show({"task": row["task"], "task_run_id": row["id"], "status": row["status"], "log": text}, "")
        return
    if not is_alone:
        click.secho(f"--- {row['task']} ({row['status']})", bold=True)
    click.echo(content, nl=bool(content) and not content.endswith(b"\n"))


def _write_run(run: dict[str, Any]) -> str:
    facts = ("workflow", "id", "status", "trigger", "logical_date", "created_at", "started_at", "finished_at", "note")
    lines = [f"{fact + ':':14}{write_value(run[fact])}" for fact in facts if run.get(fact)]
    return "\n".join([*lines, "", write_table(run.get("task_runs") or [], TASK_COLUMNS, empty="no tasks")])


def _write_comparison(answer: dict[str, Any]) -> str:
    facts = ("id", "workflow", "workflow_version", "status", "logical_date", "duration_seconds")
    rows = [{"": fact, "first": answer["runs"][0][fact], "second": answer["runs"][1][fact]} for fact in facts]
    rows += [_put_beside(f"params.{param['name']}", param["values"]) for param in answer["params"]]
    for task in answer["tasks"]:
        told = zip(task["statuses"], task["durations_seconds"], strict=True)
        cells = [status if seconds is None else f"{status} ({seconds:.1f} s)" for status, seconds in told]
        rows.append(_put_beside(("* " if task["is_different"] else "  ") + task["task"], cells))
    return write_table(rows, ("", "first", "second"), empty="")


def _put_beside(heading: str, values: list[Any]) -> dict[str, Any]:
    return {"": heading, "first": values[0], "second": values[1]}


def _write_explanation(answer: dict[str, Any]) -> str:
    lines = [f"{answer['status']}: {answer['sentence']}"]
    lines += [
        f"- {holder['name']} ({holder['id']}), since {write_value(holder['since_at'])}" for holder in answer["holders"]
    ]
    if answer["next_check_at"]:
        lines.append(f"next look: {write_value(answer['next_check_at'])}")
    return "\n".join(lines)
