"""Commands about the nodes of a cluster."""

from __future__ import annotations

from typing import Any

import click

from rota.cli.options import show, with_client, write_table
from rota.client.http import Client

COLUMNS = ("name", "status", "is_leader", "roles", "address", "version", "last_heartbeat")
REPLICA_COLUMNS = (("database copy", "name"), "state", ("sync", "sync_state"), "lag_seconds")


@click.group()
def cluster() -> None:
    """Look at the nodes of a cluster."""


@cluster.command()
@with_client
def status(client: Client) -> None:
    """Show nodes, leader and term."""
    answer = client.get("/debug/cluster")
    show(answer, lambda: _write(answer))


def _write(answer: dict[str, Any]) -> str:
    leader = answer["leader"]
    head = f"leader: {leader['name']} in term {leader['term']}" if leader else "nobody leads now"
    parts = [head, write_table(answer["nodes"], COLUMNS, empty="no nodes")]
    if answer["database_replicas"]:
        parts.append(write_table(answer["database_replicas"], REPLICA_COLUMNS, empty=""))
    return "\n\n".join(parts)
