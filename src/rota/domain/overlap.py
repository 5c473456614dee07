"""What becomes of ticks that are due while earlier runs of the same schedule are open. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rota.domain.schedule import Overlap
from rota.domain.schedule_plan import Fire

OverlapSkip = Literal["overlap", "buffer_full", "replaced_by_newer"]
Ending = Literal["cancel", "terminate"]

# With buffer_all, so many runs of a schedule wait at most.
BUFFER_MOST = 1000
# How many runs of a schedule may be open: the one that goes, and those that wait for it.
_ROOM = {"skip": 1, "buffer_one": 2, "buffer_all": 1 + BUFFER_MOST}
_SKIP_REASON: dict[str, OverlapSkip] = {"skip": "overlap", "buffer_one": "buffer_full", "buffer_all": "buffer_full"}
_ENDING: dict[str, Ending] = {"cancel_other": "cancel", "terminate_other": "terminate"}


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    """Which ticks get a run and which do not; `ending` says what happens to the runs that are open."""

    runs: tuple[Fire, ...]
    skipped: tuple[Fire, ...] = ()
    reason: OverlapSkip = "overlap"
    ending: Ending | None = None


def decide_overlap(overlap: Overlap, fires: Sequence[Fire], open_count: int) -> OverlapDecision:
    """Decides about ticks, the oldest first, when so many runs of their schedule are open."""
    if overlap == "allow" or not fires:
        return OverlapDecision(tuple(fires))
    if overlap in _ENDING:
        return OverlapDecision(
            tuple(fires[-1:]), tuple(fires[:-1]), "replaced_by_newer", _ENDING[overlap] if open_count else None
        )
    room = max(0, _ROOM[overlap] - open_count)
    return OverlapDecision(tuple(fires[:room]), tuple(fires[room:]), _SKIP_REASON[overlap])
