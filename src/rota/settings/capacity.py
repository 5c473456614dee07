"""Settings that say how much may wait to be done."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.settings.values import describe, read_count, read_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """Beyond these, callers are refused."""

    queue_job_limit: int = field(
        default=0,
        metadata=describe(
            read_count(0, 10**9), "jobs that may wait; beyond it callers get 507; 0: no limit", "QUEUE_JOB_LIMIT"
        ),
    )
    queue_memory_limit: int = field(
        default=0,
        metadata=describe(
            read_size,
            "memory of a node beyond which callers get 507, such as 2GB; 0: no limit",
            "QUEUE_MEMORY_LIMIT",
        ),
    )
    queue_memory_percent: int = field(
        default=0,
        metadata=describe(
            read_count(0, 100),
            "the same as a share of the container's or the machine's memory; 0: no limit",
            "QUEUE_MEMORY_PERCENT",
        ),
    )
    namespace_backlog_limit: int = field(
        default=0,
        metadata=describe(read_count(0, 10**9), "jobs of one namespace that may wait; beyond it 429; 0: no limit"),
    )
