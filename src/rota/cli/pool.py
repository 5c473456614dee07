"""Commands on pools."""

from __future__ import annotations

import click

from rota.cli.options import show, with_client, write_table
from rota.client.http import Client

COLUMNS = ("name", "slots", ("used", "used_slots"), "queued", "description")


@click.group()
def pool() -> None:
    """List pools, and say how many slots they have."""


@pool.command("list")
@with_client
def list_pools(client: Client) -> None:
    """List pools, and how full they are."""
    answer = client.get("/pools")
    show(answer, lambda: write_table(answer["items"], COLUMNS, empty="no pools: `rota pool set NAME SLOTS` makes one"))


@pool.command("set")
@click.argument("name")
@click.argument("slots", type=click.IntRange(1, 1_000_000))
@click.option("--description", default="", help="what the slots stand for")
@with_client
def set_pool(client: Client, name: str, slots: int, description: str) -> None:
    """Create a pool, or change its number of slots."""
    answer = client.put(f"/pools/{name}", {"slots": slots, "description": description})
    show(answer, f"pool {name} has {slots} slots, {answer['used_slots']} of them in use")


@pool.command()
@click.argument("name")
@with_client
def delete(client: Client, name: str) -> None:
    """Delete a pool that nothing runs in or waits for."""
    client.delete(f"/pools/{name}")
    show({"name": name}, f"pool {name} is deleted")
