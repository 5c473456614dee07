"""Commands that start servers: `rota up` and its parts one by one."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

import click

from rota.app.server import Parts, Rota, Started
from rota.cli.options import DISCOVERY_SETTINGS, with_settings
from rota.observability.log import bind_process, configure_logging
from rota.settings import Settings

PROCESS_SETTINGS = ("data_dir", "database_url", "secret_key_file", "log_level", "log_format")
API_SETTINGS = ("host", "port", "tls_cert", "tls_key", "rate_limit", *PROCESS_SETTINGS)
SCHEDULER_SETTINGS = ("workflows", "slot_gap", "retention", "lease", "redis_url", "event_webhooks")
CLUSTER_SETTINGS = ("node_id", "join", *DISCOVERY_SETTINGS)
WORKER_SETTINGS = (
    *("concurrency", "queues", "labels", "kinds", "grace", "drain", "http_allow", "python_path", "python_processes"),
    *("log_head_kb", "log_tail_kb", "container_socket"),
    *("kubernetes_url", "kubernetes_namespace", "kubernetes_token_file", "kubernetes_ca_file"),
)


@click.command()
@with_settings(*API_SETTINGS, *SCHEDULER_SETTINGS, "workers", *WORKER_SETTINGS)
def up(settings: Settings) -> None:
    """Start everything in one process: API, scheduler and a worker, on SQLite unless a database is named.

    The database is made, or brought up to date, first. Stop it with Ctrl-C or TERM: running tasks get the drain
    time; a second one stops at once.
    """
    run_server(settings, Parts(has_api=True, has_scheduler=True, worker_count=settings.workers, migrates=True))


@click.command()
@with_settings(*API_SETTINGS, *CLUSTER_SETTINGS)
def api(settings: Settings) -> None:
    """Start an API node. The database must be up to date (`rota db upgrade`)."""
    run_server(settings, Parts(has_api=True))


@click.command()
@with_settings(*PROCESS_SETTINGS, *SCHEDULER_SETTINGS, *CLUSTER_SETTINGS, "http_allow", "metrics_port")
def scheduler(settings: Settings) -> None:
    """Start a scheduler node. The database must be up to date (`rota db upgrade`)."""
    run_server(settings, Parts(has_scheduler=True))


@click.command()
@with_settings(*API_SETTINGS, *SCHEDULER_SETTINGS, *CLUSTER_SETTINGS, "http_allow")
def node(settings: Settings) -> None:
    """Start API and scheduler in one process. The database must be up to date (`rota db upgrade`)."""
    run_server(settings, Parts(has_api=True, has_scheduler=True))


def run_server(settings: Settings, parts: Parts) -> None:
    """Runs until a signal; a RotaError says why it could not start."""
    start_logging(settings)

    asyncio.run(_serve(settings, parts))


def start_logging(settings: Settings) -> None:
    configure_logging(settings.log_level, settings.log_format)
    bind_process(node=settings.node_id)


async def _serve(settings: Settings, parts: Parts) -> None:
    rota = Rota(settings, parts)
    stop_on_signals(rota.stop, "stopping: running tasks get time to end; once more to stop at once")
    await rota.run(_greet)


def stop_on_signals(stop: Callable[[], None], notice: str) -> None:
    """Calls `stop` on each TERM and INT; a person at a terminal is told what happens."""
    told: list[bool] = []

    def obey() -> None:
        if not told and sys.stderr.isatty():
            click.echo(notice, err=True)
        told.append(True)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, obey)


def _greet(started: Started) -> None:
    if started.url:
        click.echo(f"Rota listens on {started.url} (API: {started.url}/docs)")
    click.echo(f"Data: {started.database}")
    if started.url:
        click.echo("Look around from another terminal: `rota workflow list`, `rota runs list`, `rota logs RUN`")
    sys.stdout.flush()
