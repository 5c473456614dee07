"""Which lanes have work for workers of one sort: looked at a window at a time, so that no claim pays for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rota.domain.share import FairShare
from rota.store.claims import ReadyLane
from rota.store.lanes import FIRST_LANE, Lane


@dataclass(slots=True)
class ReadyLanes:
    """The lanes that had work when they were last looked at, and what their namespaces have been given.

    With fewer of them than `window` that is now. With more, each look covers the next window of them, and says of the
    others what was known before.
    """

    window: int
    share: FairShare = field(default_factory=FairShare)
    next_lane: int = FIRST_LANE
    # By namespace and lane: the rank of what is first there.
    heads: dict[str, dict[int, int]] = field(default_factory=dict)
    lanes: dict[int, Lane] = field(default_factory=dict)

    def see(self, first_lane: int, seen: Sequence[ReadyLane], mine: dict[int, Lane]) -> bool:
        """Takes in what has been found from `first_lane` on, of which `mine` can be taken. True if that was all."""
        is_last = len(seen) < self.window
        end = None if is_last else seen[-1].lane_id
        self.next_lane = FIRST_LANE if end is None else end + 1
        for lane_id in [known for known in self.lanes if known >= first_lane and (end is None or known <= end)]:
            if lane_id not in mine:
                self.forget(lane_id)
        for entry in seen:
            if entry.lane_id in mine:
                self._keep(entry, mine[entry.lane_id])
        return is_last and first_lane == FIRST_LANE

    def _keep(self, entry: ReadyLane, lane: Lane) -> None:
        if lane.namespace not in self.heads:
            self.heads[lane.namespace] = {}
            self.share.enter(lane.namespace)
        self.heads[lane.namespace][entry.lane_id] = entry.head_rank
        self.lanes[entry.lane_id] = lane

    def forget(self, lane_id: int) -> None:
        """The lane has no work, as far as is known."""
        lane = self.lanes.pop(lane_id, None)
        if lane is None:
            return
        own = self.heads[lane.namespace]
        del own[lane_id]
        if not own:
            del self.heads[lane.namespace]
            self.share.leave(lane.namespace)
