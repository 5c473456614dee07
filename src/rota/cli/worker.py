"""The command `rota worker`: a worker for a server elsewhere, and what is known of all workers."""

from __future__ import annotations

import asyncio

import click

from rota.app.worker import RemoteWorker
from rota.cli.options import DISCOVERY_SETTINGS, show, with_client, with_settings, write_table
from rota.cli.serve import WORKER_SETTINGS, start_logging, stop_on_signals
from rota.client.http import Client
from rota.settings import Settings

COLUMNS = ("name", "status", "last_heartbeat", "running", "concurrency", "queues", "hostname", "id")


@click.group(invoke_without_command=True)
@click.pass_context
@with_settings(
    "server", *DISCOVERY_SETTINGS, "token", "worker_id", *WORKER_SETTINGS, "metrics_port", "log_level", "log_format"
)
def worker(settings: Settings, context: click.Context) -> None:
    """Start a worker for a server elsewhere. With `list` or `drain`: look after the workers.

    TERM or Ctrl-C lets running tasks end within the drain time; a second one hands them back at once.
    """
    if context.invoked_subcommand is None:
        start_logging(settings)
        asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    remote = RemoteWorker(settings)
    stop_on_signals(remote.stop, "stopping: running tasks get time to end; once more to stop at once")
    asked = ", ".join(settings.server)
    if settings.discovery != "static":
        asked = f"whoever {settings.discovery} finds as {settings.discovery_name}"
    await remote.run(lambda: click.echo(f"Worker {settings.worker_id} asks {asked} for work"))


@worker.command("list")
@with_client
def list_workers(client: Client) -> None:
    """List workers."""
    answer = client.get("/workers")
    show(answer, lambda: write_table(answer["items"], COLUMNS, empty="no workers"))


@worker.command()
@click.argument("worker_id", metavar="WORKER")
@with_client
def drain(client: Client, worker_id: str) -> None:
    """Let a worker finish what it has, and take no more."""
    show(client.post(f"/workers/{worker_id}/drain"), f"worker {worker_id} is draining")
