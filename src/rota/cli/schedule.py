"""Commands on schedules."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.options import show, with_client, write_table, write_value
from rota.client.http import Client

STATES = ("upcoming", "late", "missed", "paused", "finished")


@click.group()
def schedule() -> None:
    """List, pause, unpause and explain schedules."""


@schedule.command("list")
@click.option("--state", type=click.Choice(STATES), help="only those in this state")
@click.option("--workflow", help="only those of this workflow")
@click.option("--limit", default=100, type=click.IntRange(1, 500), show_default=True)
@with_client
def list_schedules(client: Client, state: str | None, workflow: str | None, limit: int) -> None:
    """List schedules."""
    answer = client.get("/schedules", {"state": state, "workflow": workflow, "limit": limit})
    rows = [{**row, "rule": _write_rule(row["definition"])} for row in answer["items"]]
    columns = ("workflow", "rule", ("active", "is_active"), ("next run", "next_run_at"), "id")
    show(answer, lambda: write_table(rows, columns, empty="no schedules"))


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True)
@with_client
def decisions(client: Client, schedule_id: str, limit: int) -> None:
    """Show what was decided about a schedule's ticks, the newest first."""
    answer = client.get(f"/schedules/{schedule_id}/decisions", {"limit": limit})
    rows = [{**row, **(row["details"] or {})} for row in answer["items"]]
    columns = ("at", "decision", "count", ("first", "first_at"), ("last", "last_at"), "reason")
    show(answer, lambda: write_table(rows, columns, empty="nothing was decided yet"))


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@click.option("--reason", default="", help="a word about why")
@with_client
def pause(client: Client, schedule_id: str, reason: str) -> None:
    """Stop one schedule; its runs go on."""
    answer = client.patch(f"/schedules/{schedule_id}", {"is_active": False, "reason": reason})
    show(answer, f"the schedule of {answer['workflow']} is paused")


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@with_client
def unpause(client: Client, schedule_id: str) -> None:
    """Let one schedule go on from now."""
    answer = client.patch(f"/schedules/{schedule_id}", {"is_active": True})
    is_held = not answer["is_active"]
    show(answer, f"the schedule is active{', but its workflow is paused' if is_held else ''}")


@schedule.command()
@click.argument("schedule_id", metavar="ID")
@with_client
def explain(client: Client, schedule_id: str) -> None:
    """Say why a schedule does not fire."""
    answer = client.get(f"/schedules/{schedule_id}/explain")
    show(answer, lambda: f"{answer['sentence']}; next look: {write_value(answer['next_check_at'])}")


def _write_rule(rule: dict[str, Any]) -> str:
    words = ("schedule_cron", "interval_seconds", "run_at", "timezone")
    return " ".join(write_value(rule[word]) for word in words if word in rule)
