"""Commands on queues."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.options import show, with_client, write_table
from rota.client.http import Client
from rota.domain.errors import NotFound

COLUMNS = ("name", "rate", ("paused", "is_paused"), "queued", ("next start", "next_start_at"), "description")


@click.group()
def queue() -> None:
    """Pause queues, and limit how fast their task runs start."""


@queue.command("list")
@with_client
def list_queues(client: Client) -> None:
    """List the queues that are paused, limited or described."""
    answer = client.get("/queues")
    rows = [{**row, "rate": _describe(row["rate_limit"])} for row in answer["items"]]
    show(answer, lambda: write_table(rows, COLUMNS, empty="nothing has been said about any queue"))


@queue.command()
@click.argument("name")
@click.argument("starts", type=click.IntRange(1, 1_000_000))
@click.option("--seconds", default=1.0, show_default=True, help="so many STARTS in this time")
@click.option("--burst", type=click.IntRange(1, 1_000_000), help="how many at once after a rest")
@with_client
def limit(client: Client, name: str, starts: int, seconds: float, burst: int | None) -> None:
    """Let only so many task runs of a queue start in a time."""
    answer = _change(client, name, {"rate_limit": {"starts": starts, "seconds": seconds, "burst": burst}})
    show(answer, f"queue {name}: {_describe(answer['rate_limit'])}")


@queue.command()
@click.argument("name")
@with_client
def pause(client: Client, name: str) -> None:
    """Let nothing of a queue start. What runs goes on."""
    show(_change(client, name, {"is_paused": True}), f"queue {name} is paused")


@queue.command()
@click.argument("name")
@with_client
def unpause(client: Client, name: str) -> None:
    """Let the task runs of a queue start again."""
    show(_change(client, name, {"is_paused": False}), f"queue {name} is not paused")


@queue.command()
@click.argument("name")
@with_client
def reset(client: Client, name: str) -> None:
    """Forget what has been said about a queue: no rate, no pause."""
    client.delete(f"/queues/{name}")
    show({"name": name}, f"queue {name} has no limits")


def _change(client: Client, name: str, changes: dict[str, Any]) -> Any:
    """What has been said stays, but for these changes."""
    try:
        known = client.get(f"/queues/{name}")
    except NotFound:
        known = {}
    kept = {field: known[field] for field in ("rate_limit", "is_paused", "description") if field in known}
    return client.put(f"/queues/{name}", {**kept, **changes})


def _describe(rate: dict[str, Any] | None) -> str:
    return f"{rate['starts']} in {rate['seconds']:g} s, {rate['burst']} at once" if rate else ""
