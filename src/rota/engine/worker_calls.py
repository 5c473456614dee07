"""What workers ask of the engine in one go, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rota.domain.work import Report, ReportResult, WorkerIdentity
from rota.engine.claim import ClaimResult


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """One worker's report, its wish for more work, or both."""

    worker: WorkerIdentity
    reports: Sequence[Report]
    limit: int


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    results: tuple[ReportResult, ...]
    claimed: ClaimResult


def answer_calls(
    calls: Sequence[WorkerCall], results: Sequence[ReportResult], claims: Sequence[ClaimResult]
) -> list[WorkerAnswer]:
    """To each caller the results of its own reports, and its own assignments."""
    rest = iter(results)
    return [
        WorkerAnswer(tuple(islice(rest, len(call.reports))), claimed)
        for call, claimed in zip(calls, claims, strict=True)
    ]
