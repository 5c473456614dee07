"""What happened, as those who follow it are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventType(StrEnum):
    """What an event is about. The words are those of the older systems."""

    WORKFLOW = "workflow_status"
    TASK = "task_status"
    WORKER = "worker_heartbeat"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `document` is its JSON, encoded once for everybody."""

    seq: int
    type: EventType
    # Empty when it concerns every namespace: workers belong to none.
    namespace: str
    workflow_id: str | None
    run_id: str | None
    document: bytes


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted: those for which everything holds that is given."""

    namespace: str | None = None
    types: frozenset[EventType] = frozenset()
    workflow_id: str | None = None
    run_id: str | None = None

    def matches(self, event: Event) -> bool:
        return (
            (self.namespace is None or event.namespace in (self.namespace, ""))
            and (not self.types or event.type in self.types)
            and (self.workflow_id is None or event.workflow_id == self.workflow_id)
            and (self.run_id is None or event.run_id == self.run_id)
        )

    @property
    def wants_heartbeats(self) -> bool:
        """Whether any heartbeat can match: a worker belongs to no workflow and to no run."""
        is_of_type = not self.types or EventType.WORKER in self.types
        return is_of_type and self.workflow_id is None and self.run_id is None
