"""What the verbs tell the metrics, once it is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.observability.metrics import Metrics
from rota.store.claims import Claimed
from rota.store.database import Transaction
from rota.store.history import Change
from rota.store.outcomes import Landed


class Watch:
    """Counts for one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def note_changes(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        """Changes of state that are about to be recorded."""
        counts = Counter((change.entity_type, change.old_state, change.new_state) for change in changes)
        transaction.after_commit(lambda: self._count(counts))

    def _count(self, counts: Counter[tuple[str, str | None, str]]) -> None:
        for (entity_type, old, new), count in counts.items():
            if old == new:
                # A note, not a move. Those of task runs are results that came too late.
                self._metrics.count_late_results(count if entity_type == "task_run" else 0)
            elif entity_type == "task_run":
                self._metrics.count_tasks(new, count)
            elif entity_type == "workflow_run":
                self._metrics.count_workflow_runs(new, count)

    def note_claims(self, transaction: Transaction, worker_id: str, claimed: Sequence[Claimed]) -> None:
        """Task runs that are about to be handed out."""
        transaction.after_commit(lambda: self._count_claims(worker_id, claimed))

    def _count_claims(self, worker_id: str, claimed: Sequence[Claimed]) -> None:
        self._metrics.count_claims(len(claimed))
        again = sum(row.failure_count > 0 for row in claimed)
        if again:
            self._metrics.count_retries(worker_id, again)
        for row in claimed:
            self._metrics.observe_start((row.started_at - row.queued_at).total_seconds())

    def note_ends(self, transaction: Transaction, landed: Sequence[Landed]) -> None:
        """Attempts that are about to end."""
        transaction.after_commit(lambda: self._observe_ends(landed))

    def _observe_ends(self, landed: Sequence[Landed]) -> None:
        for row in landed:
            if row.finished_at is not None:
                self._metrics.observe_task(row.status, (row.finished_at - row.started_at).total_seconds())

    def note_refusal(self, reason: str) -> None:
        """Something was not taken because too much waits."""
        self._metrics.count_refusals(reason)

    def note_capacity(self, used: int, limit: int) -> None:
        """What waits has been counted."""
        self._metrics.set_capacity(used, limit)

    def note_heartbeat(self, transaction: Transaction, worker_id: str) -> None:
        """A worker is alive."""
        transaction.after_commit(lambda: self._metrics.count_heartbeat(worker_id))
