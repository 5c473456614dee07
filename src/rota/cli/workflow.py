"""Commands on workflows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from rota.cli.options import show, with_client, write_table, write_value
from rota.cli.waiting import WAIT_OPTION, wait_for_run
from rota.client.http import Client
from rota.domain.errors import FieldError, InvalidInput


@click.group()
def workflow() -> None:
    """List, show, trigger, pause and unpause workflows."""


@workflow.command("list")
@click.option("--limit", default=100, type=click.IntRange(1, 500), show_default=True)
@click.option("--tag", help="only those with this tag")
@click.option("-q", "--query", help="only those with this in their name or description")
@with_client
def list_workflows(client: Client, limit: int, tag: str | None, query: str | None) -> None:
    """List workflows."""
    answer = client.get("/workflows", {"limit": limit, "tag": tag, "q": query})
    columns = (
        "name",
        ("version", "current_version"),
        ("active", "is_active"),
        ("next run", "next_run_at"),
        "tags",
        "id",
    )
    rows = [row if row["is_active"] else {**row, "next_run_at": None} for row in answer["items"]]
    show(answer, lambda: write_table(rows, columns, empty="no workflows: `rota apply FILE` makes one"))


@workflow.command("show")
@click.argument("name")
@with_client
def show_workflow(client: Client, name: str) -> None:
    """Show one workflow by name or id: its tasks and what they wait for."""
    answer = client.get(f"/workflows/{name}")
    show(answer, lambda: _write_workflow(answer))


@workflow.command()
@click.argument("name")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="a parameter; VALUE may be JSON")
@click.option("--logical-date", help="the time that the run stands for; default: now")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="a label to find the run by")
@click.option("--note", help="a word about why")
@WAIT_OPTION
@with_client
def trigger(
    client: Client, name: str, params: tuple[str, ...], labels: tuple[str, ...], is_waiting: bool, **facts: str | None
) -> int:
    """Start a run. With --wait the exit code tells how it ended."""
    body = {"params": read_params(params), "labels": _read_labels(labels), **facts}
    run = client.post(f"/workflows/{name}/trigger", {key: value for key, value in body.items() if value})
    if is_waiting:
        return wait_for_run(client, run["id"])
    show(run, f"run {run['id']} is {run['status']}")
    return 0


@workflow.command()
@click.argument("name")
@with_client
def pause(client: Client, name: str) -> None:
    """Stop the schedules of a workflow; its runs go on."""
    show(client.post(f"/workflows/{name}/pause"), f"{name} is paused")


@workflow.command()
@click.argument("name")
@with_client
def unpause(client: Client, name: str) -> None:
    """Let the schedules of a workflow go on from now."""
    show(client.post(f"/workflows/{name}/unpause"), f"{name} is active")


def read_params(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parameters as given: JSON where it is JSON, text otherwise."""
    params: dict[str, Any] = {}
    for name, text in _read_pairs("--param", pairs):
        try:
            params[name] = json.loads(text)
        except ValueError:
            params[name] = text
    return params


def _read_labels(pairs: tuple[str, ...]) -> dict[str, str]:
    return dict(_read_pairs("--label", pairs))


def _read_pairs(option: str, pairs: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not name or not separator:
            raise InvalidInput.of([FieldError(option, f"{pair!r} is not allowed; send NAME=VALUE")])
        yield name, text


def _write_workflow(found: dict[str, Any]) -> str:
    facts = ("name", "id", "description", "is_active", "current_version", "tags", "max_active_runs", "created_at")
    lines = [f"{fact + ':':18}{write_value(found[fact])}" for fact in facts if found.get(fact) not in (None, "", [])]
    for schedule in found.get("schedules") or ():
        rule = ", ".join(f"{name} {write_value(value)}" for name, value in schedule["definition"].items())
        lines.append(f"{'schedule:':18}{rule}; next run {write_value(schedule['next_run_at'])}")
    columns = ("name", "depends_on", "command", ("retries", "retry_count"))
    return "\n".join([*lines, "", write_table(found["definition"].get("tasks") or [], columns, empty="no tasks yet")])
