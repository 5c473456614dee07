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
    """List, show, trigger, pause and delete workflows; their versions."""


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


# Options of a backfill that are called the same in its body.
_SAME_WORDS = ("schedule_id", "max_active", "max_runs", "direction", "dry_run")


@workflow.command()
@click.argument("name")
@click.option("--from", "begin", required=True, help="the first instant, such as 2030-01-01T00:00:00Z")
@click.option("--to", "end", required=True, help="the last instant, itself included")
@click.option("--schedule", "schedule_id", help="which schedule, where there are several")
@click.option("--max-active", default=1, show_default=True, help="runs of it that are open at once")
@click.option("--max-runs", type=int, help="make at most so many")
@click.option("--backward", "direction", flag_value="backward", help="the newest first")
@click.option("--all", "is_all", is_flag=True, help="also ticks that have a run that succeeded or is open")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="a parameter; VALUE may be JSON")
@click.option("--dry-run", is_flag=True, help="only count")
@with_client
def backfill(client: Client, name: str, **given: Any) -> None:
    """Make the runs of a schedule's past ticks, step by step."""
    body = {
        "from": given["begin"],
        "to": given["end"],
        "only_missing": not given["is_all"],
        "params": read_params(given["params"]),
        **{
            word: given[word]
            for word in ("schedule_id", "max_active", "max_runs", "direction", "dry_run")
            if given[word]
        },
    }
    answer = client.post(f"/workflows/{name}/backfills", body)
    count = answer["count"] if given["dry_run"] else answer["tick_count"]
    many = "more than 10,000" if count is None else str(count)
    show(answer, f"{many} ticks" if given["dry_run"] else f"backfill {answer['id']} of {many} ticks has begun")


@workflow.command("next")
@click.argument("name")
@click.option("--count", default=5, type=click.IntRange(1, 1000), show_default=True)
@with_client
def show_next(client: Client, name: str, count: int) -> None:
    """Show when a workflow fires next, by all of its schedules."""
    answer = client.get(f"/workflows/{name}/preview", {"count": count})
    show(answer, lambda: write_table(answer["items"], ("at", "local", "note"), empty="it has no schedule to come"))


@workflow.command()
@click.argument("name")
@click.option("--diff", "number", type=click.IntRange(1), metavar="N", help="show what version N changed")
@click.option("--against", type=click.IntRange(0), metavar="M", help="with --diff: since version M; default: N - 1")
@click.option("--limit", default=20, type=click.IntRange(1, 500), show_default=True)
@with_client
def versions(client: Client, name: str, number: int | None, against: int | None, limit: int) -> None:
    """List the versions of a workflow, the newest first, or show what one of them changed."""
    if number is not None:
        diff = client.get(f"/workflows/{name}/versions/{number}/diff", {"against": against})
        show(diff, lambda: _write_diff(diff))
        return
    answer = client.get(f"/workflows/{name}/versions", {"limit": limit})
    columns = (("version", "number"), "created_at", ("content", "content_hash"))
    rows = [{**row, "content_hash": row["content_hash"][:12]} for row in answer["items"]]
    show(answer, lambda: write_table(rows, columns, empty="no versions: the workflow has no tasks yet"))


@workflow.command()
@click.argument("name")
@click.argument("version", type=click.IntRange(1))
@with_client
def rollback(client: Client, name: str, version: int) -> None:
    """Make a workflow be what it was in an older version. That makes a new version."""
    answer = client.post(f"/workflows/{name}/rollback", {"version": version})
    changed = f"{name} is at version {answer['current_version']}, with the content of {version}"
    show(answer, changed if answer["is_changed"] else f"{name} has the content of version {version} already")


@workflow.command()
@click.argument("name")
@click.option("--yes", "is_sure", is_flag=True, help="do not ask")
@with_client
def delete(client: Client, name: str, is_sure: bool) -> None:
    """Delete a workflow with its versions and runs. Refused while runs of it are open."""
    if not is_sure:
        click.confirm(f"delete {name} with all its versions and runs?", abort=True)
    client.delete(f"/workflows/{name}")
    show({"name": name, "is_deleted": True}, f"{name} is deleted")


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


def _write_diff(diff: dict[str, Any]) -> str:
    lines = [f"+ task {name}" for name in diff["added"]] + [f"- task {name}" for name in diff["removed"]]
    lines += [_write_change("", change) for change in diff["fields"]]
    lines += [_write_change(f"task {task['task']}: ", change) for task in diff["changed"] for change in task["fields"]]
    lines += ["the tasks stand in another order"] if diff["is_reordered"] else []
    return "\n".join(lines) or "nothing differs"


def _write_change(where: str, change: dict[str, Any]) -> str:
    old, new = (json.dumps(change[side], ensure_ascii=False) for side in ("old", "new"))
    return f"~ {where}{change['field']}: {old} -> {new}"
