"""Commands on jobs: one command or one webhook, now, once, or again and again."""

from __future__ import annotations

import json
from typing import Any

import click

from rota.cli.options import show, with_client, write_table
from rota.client.http import Client
from rota.domain.errors import FieldError, InvalidInput

RUN_COLUMNS = ("id", "status", "trigger", "started_at", "finished_at")


@click.group()
def job() -> None:
    """Submit jobs and follow them."""


@job.command()
@click.option("--name", help="a name to find it by")
@click.option("--command", help="a shell command to run")
@click.option("--webhook", metavar="URL", help="a URL to call instead")
@click.option("--payload", metavar="JSON", help="what to send to the URL")
@click.option("--at", metavar="TIME", help="run once at this time, such as 2027-01-31T08:00:00Z")
@click.option("--cron", metavar="EXPRESSION", help="run again and again")
@click.option("--tz", "timezone", help="time zone of --at and --cron")
@click.option("--retries", type=click.IntRange(0), help="how often to try again")
@click.option("--timeout", type=float, metavar="SECONDS", help="longest time of one try")
@click.option("--queue", help="only workers of this queue take it")
@with_client
def submit(client: Client, webhook: str | None, payload: str | None, **given: Any) -> None:
    """Submit a job. Without --at and --cron it runs now."""
    names = {"at": "timestamp", "cron": "schedule_cron", "retries": "max_retries", "timeout": "timeout_seconds"}
    body = {names.get(key, key): value for key, value in given.items()}
    body |= {"webhook_url": webhook, "payload": _read_payload(payload)}
    answer = client.post("/jobs", {key: value for key, value in body.items() if value is not None})
    show(answer, f"job {answer['id']} is {answer['status']}")


@job.command("list")
@click.option("--status", multiple=True, help="only in this state; may be repeated")
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True)
@with_client
def list_jobs(client: Client, status: tuple[str, ...], limit: int) -> None:
    """List jobs, the newest first."""
    answer = client.get("/jobs", {"status": status, "limit": limit})
    show(
        answer,
        lambda: write_table(
            answer["items"], ("id", "name", "status", ("next run", "next_run_at"), "created_at"), empty="no jobs"
        ),
    )


@job.command()
@click.argument("job_id", metavar="JOB")
@with_client
def status(client: Client, job_id: str) -> None:
    """Show how a job stands."""
    answer = client.get(f"/jobs/{job_id}")
    show(answer, f"job {job_id} is {answer['status']}")


@job.command("runs")
@click.argument("job_id", metavar="JOB")
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True)
@with_client
def list_runs(client: Client, job_id: str, limit: int) -> None:
    """List the runs of a job."""
    answer = client.get(f"/jobs/{job_id}/runs", {"limit": limit})
    show(answer, lambda: write_table(answer["items"], RUN_COLUMNS, empty="no runs yet"))


@job.command()
@click.argument("job_id", metavar="JOB")
@with_client
def logs(client: Client, job_id: str) -> None:
    """Print what the job's last run wrote."""
    newest = client.get(f"/jobs/{job_id}/runs", {"limit": 1})["items"]
    path = f"/task-runs/{newest[0]['task_run_id']}/logs" if newest else ""
    written = client.get_bytes(path, {"raw": True, "limit": 5_000_000}) if newest else b""
    text = written.decode("utf-8", "replace")
    show({"job_id": job_id, "log": text}, text.removesuffix("\n"))


@job.command()
@click.argument("job_id", metavar="JOB")
@click.option("--reason", default="", help="kept in the history")
@with_client
def cancel(client: Client, job_id: str, reason: str) -> None:
    """Cancel a job: no further runs, and the present one is killed."""
    show(client.post(f"/jobs/{job_id}/cancel", {"reason": reason}), f"job {job_id} is cancelled")


def _read_payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidInput.of([FieldError("--payload", f"{text!r} is not JSON")]) from None
