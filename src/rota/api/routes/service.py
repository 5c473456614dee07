"""How the service is: liveness, readiness, health, metrics."""

from __future__ import annotations

import asyncio

import structlog
from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from rota import __version__
from rota.api.answers import answer
from rota.api.context import Api, Context
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.service import Failures, Health, JobUse, Liveness, MemoryUse
from rota.domain.access import Permission
from rota.domain.errors import RotaError
from rota.observability.memory import read_memory
from rota.observability.outcomes import WINDOW_SECONDS

log = structlog.get_logger(__name__)
router = APIRouter(tags=["service"], route_class=LimitedRoute)
EMPTY = CollectorRegistry()
# A probe wants an answer; the database's own retries take longer.
REACH_SECONDS = 3.0
# Fewer say nothing of a rate.
FEWEST_OUTCOMES = 20


@router.get("/healthz", response_model=Liveness)
@needs(Permission.OPEN)
async def check_liveness(api: Context) -> Response:
    """The process answers."""
    return answer(Liveness(status="ok", service=api.options.service))


@router.get("/readyz", response_model=Liveness, responses={503: {"model": Liveness}})
@needs(Permission.OPEN)
async def check_readiness(api: Context) -> Response:
    """Requests can be served: the database answers, and the server is not about to stop."""
    is_ready = not api.polls.is_closing and await _reach_database(api)
    shape = Liveness(status="ok" if is_ready else "unavailable", service=api.options.service)
    return answer(shape, 200 if is_ready else 503)


@router.get("/health", response_model=Health, responses={503: {"model": Health}})
@needs(Permission.VIEW)
async def read_health(api: Context) -> Response:
    """How the service is; 503 when it is not healthy."""
    is_reachable = await _reach_database(api)
    failures = _count_failures(api)
    reasons = [] if is_reachable else ["the database does not answer"]
    if failures.finished >= FEWEST_OUTCOMES and failures.rate > failures.threshold:
        reasons.append(f"{failures.failed} of the last {failures.finished} tasks failed")
    node = api.options.node
    shape = Health(
        status="unhealthy" if reasons else "healthy",
        reasons=reasons,
        version=__version__,
        service=api.options.service,
        node=node.name if node else None,
        role=node.role if node else "follower",
        term=node.term if node else None,
        database=is_reachable,
        memory=MemoryUse.model_validate(read_memory()),
        jobs=await _count_jobs(api, is_reachable=is_reachable),
        failures=failures,
    )
    return answer(shape, 503 if reasons else 200)


async def _count_jobs(api: Api, *, is_reachable: bool) -> JobUse:
    capacity = await api.engine.read_capacity() if is_reachable else None
    used, limit = (capacity.jobs_used, capacity.jobs_limit) if capacity else (0, 0)
    return JobUse(used=used, limit=limit, utilization_percent=round(100 * used / limit, 1) if limit else 0.0)


def _count_failures(api: Api) -> Failures:
    finished, failed = api.options.outcomes.count()
    return Failures(
        window_seconds=WINDOW_SECONDS,
        finished=finished,
        failed=failed,
        rate=round(failed / finished, 4) if finished else 0.0,
        threshold=api.options.failure_threshold,
    )


@router.get("/metrics", response_class=Response)
@needs(Permission.VIEW, everywhere=True)
async def read_metrics(api: Context) -> Response:
    """Everything that is counted, for Prometheus."""
    return Response(generate_latest(api.options.registry or EMPTY), media_type=CONTENT_TYPE_LATEST)


async def _reach_database(api: Api) -> bool:
    try:
        async with asyncio.timeout(REACH_SECONDS):
            await api.read_time()
    except (RotaError, TimeoutError):
        return False
    except Exception:
        log.exception("database_refuses")
        return False
    return True
