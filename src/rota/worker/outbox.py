"""What waits to be reported, in order; results are never dropped, logs give way to memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from rota.domain.work import AttemptKey, Finished, LogChunk, Report
from rota.worker.logs import AttemptLog

MAX_BATCH_REPORTS = 1000
MAX_BATCH_BYTES = 4 * 1024 * 1024


class Outbox:
    """Collects reports and the logs that have something new, and cuts them into batches."""

    def __init__(self, *, flush_seconds: float, max_log_bytes: int) -> None:
        self._flush_seconds = flush_seconds
        self._max_log_bytes = max_log_bytes
        self._pending: deque[Report] = deque()
        self._dirty: dict[AttemptLog, None] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self._busy: dict[AttemptKey, int] = {}
        self.log_bytes = 0
        self.finished = 0
        # Set whenever something may have become ready to be sent.
        self.changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def note_log(self, log: AttemptLog) -> None:
        """The log has something new: it is sent soon, together with others."""
        self._dirty[log] = None
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(self._flush_seconds, self._flush_logs)

    def add_end(self, log: AttemptLog, finished: Finished) -> None:
        """An attempt's last chunks and its result, in this order."""
        self._dirty.pop(log, None)
        if log.total_bytes:
            self._add_chunks(log.finish())
        self._pending.append(finished)
        self.finished += 1
        self.changed.set()

    def add_last_words(self, log: AttemptLog) -> None:
        """The rest of the log of an attempt whose result is not reported."""
        self._dirty.pop(log, None)
        self._add_chunks(log.finish())

    def take_batch(self) -> list[Report]:
        """The next reports to send. Attempts whose log is on its way in another batch wait for their turn."""
        batch: list[Report] = []
        left: deque[Report] = deque()
        waiting = dict(self._busy)
        size = 0
        while self._pending and len(batch) < MAX_BATCH_REPORTS and size < MAX_BATCH_BYTES:
            report = self._pending.popleft()
            if waiting and AttemptKey(report.task_run_id, report.attempt) in waiting:
                left.append(report)
                continue
            batch.append(report)
            size += len(report.data) if isinstance(report, LogChunk) else 0
        while left:
            self._pending.appendleft(left.pop())
        for key in keys_of_logs(batch):
            self._busy[key] = self._busy.get(key, 0) + 1
        self.finished -= count_finished(batch)
        return batch

    def confirm(self, batch: Sequence[Report]) -> None:
        """The batch was answered."""
        for key in keys_of_logs(batch):
            count = self._busy[key] - 1
            if count:
                self._busy[key] = count
            else:
                del self._busy[key]
        self.log_bytes -= sum(len(report.data) for report in batch if isinstance(report, LogChunk))
        self.changed.set()

    def _flush_logs(self) -> None:
        self._flush_timer = None
        dirty, self._dirty = self._dirty, {}
        for log in dirty:
            self._add_chunks(log.take())
            if self.log_bytes > self._max_log_bytes:
                log.close_head()

    def _add_chunks(self, chunks: Iterable[LogChunk]) -> None:
        for chunk in chunks:
            self._pending.append(chunk)
            self.log_bytes += len(chunk.data)
            self.changed.set()


def keys_of_logs(batch: Iterable[Report]) -> set[AttemptKey]:
    return {AttemptKey(report.task_run_id, report.attempt) for report in batch if isinstance(report, LogChunk)}


def count_finished(batch: Iterable[Report]) -> int:
    return sum(1 for report in batch if isinstance(report, Finished))
