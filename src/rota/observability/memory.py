"""How much memory this process has, and how much it may have."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_RSS = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Memory:
    used_bytes: int
    limit_bytes: int

    @property
    def utilization_percent(self) -> float:
        return round(100 * self.used_bytes / self.limit_bytes, 1)


def read_memory() -> Memory:
    """What the process keeps, against what its container or else the machine has."""
    found = _RSS.search(Path("/proc/self/status").read_text(encoding="ascii"))
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Memory(int(found[1]) * 1024 if found else 0, min(machine, _read_container_limit() or machine))


def _read_container_limit() -> int | None:
    try:
        given = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(given) if given.isdigit() else None
