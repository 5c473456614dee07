"""What the processes make of the settings, and their small health server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import structlog

from rota.domain.errors import Unavailable
from rota.engine.core import EngineOptions
from rota.observability.health import HealthServer
from rota.observability.memory import read_memory
from rota.scheduler.service import SchedulerOptions
from rota.settings import Settings
from rota.worker.options import WorkerOptions

log = structlog.get_logger(__name__)

SCHEDULER_METRICS_PORT = 9090
WORKER_METRICS_PORT = 9091
METRICS_HOST = "127.0.0.1"


def worker_options(settings: Settings) -> WorkerOptions:
    """A worker as these settings want it."""
    return WorkerOptions(
        name=settings.worker_id,
        queues=settings.queues,
        labels=settings.labels,
        concurrency=settings.concurrency,
        grace_seconds=settings.grace_seconds,
        drain_seconds=settings.drain_seconds,
        http_allow=settings.http_allow,
        kinds=settings.kinds,
        python_path=settings.python_path,
        python_processes=settings.python_processes,
        max_log_head_bytes=settings.log_head_kb * 1024,
        max_log_tail_bytes=settings.log_tail_kb * 1024,
        container_socket=settings.container_socket,
        kubernetes_url=settings.kubernetes_url,
        kubernetes_namespace=settings.kubernetes_namespace,
        kubernetes_token_file=settings.kubernetes_token_file,
        kubernetes_ca_file=settings.kubernetes_ca_file,
    )


def engine_options(settings: Settings) -> EngineOptions:
    """Two heartbeats may get lost before a lease ends."""
    share = read_memory().limit_bytes * settings.queue_memory_percent // 100
    return EngineOptions(
        lease_seconds=settings.lease_seconds,
        heartbeat_interval_seconds=settings.lease_seconds / 3,
        audit_retention_seconds=settings.audit_retention_seconds,
        queue_job_limit=settings.queue_job_limit,
        namespace_backlog_limit=settings.namespace_backlog_limit,
        queue_memory_bytes=settings.queue_memory_limit or share,
    )


def scheduler_options(settings: Settings) -> SchedulerOptions:
    return SchedulerOptions(settings.slot_gap_seconds, settings.retention_seconds, settings.http_allow)


@contextlib.asynccontextmanager
async def show_health(health: HealthServer, port: int | None, default_port: int) -> AsyncIterator[None]:
    """`/metrics` and `/healthz` on the port asked for (0: nowhere); on the default port only if that is free."""
    if port != 0:
        try:
            await health.start(METRICS_HOST, default_port if port is None else port)
            log.info("metrics_listening", port=health.port)
        except Unavailable as error:
            if port is not None:
                raise
            log.warning("metrics_off", reason=error.detail, hint="choose a port with --metrics-port")
    try:
        yield
    finally:
        await health.stop()
