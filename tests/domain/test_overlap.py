"""Overlap: which ticks get a run while earlier runs of their schedule are open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.overlap import BUFFER_MOST, decide_overlap
from rota.domain.schedule_plan import Fire

START = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _fires(count: int) -> list[Fire]:
    return [Fire(START + timedelta(minutes=number), START + timedelta(minutes=number)) for number in range(count)]


@pytest.mark.parametrize(
    ("overlap", "ticks", "open_count", "runs", "reason", "ending"),
    [
        ("allow", 3, 9, [0, 1, 2], None, None),
        ("skip", 1, 0, [0], None, None),
        ("skip", 3, 0, [0], "overlap", None),
        ("skip", 2, 1, [], "overlap", None),
        ("buffer_one", 3, 0, [0, 1], "buffer_full", None),
        ("buffer_one", 3, 1, [0], "buffer_full", None),
        ("buffer_one", 1, 2, [], "buffer_full", None),
        ("buffer_all", 3, 5, [0, 1, 2], None, None),
        ("buffer_all", 3, BUFFER_MOST - 1, [0, 1], "buffer_full", None),
        ("buffer_all", 3, 5 * BUFFER_MOST, [], "buffer_full", None),
        ("cancel_other", 3, 0, [2], "replaced_by_newer", None),
        ("cancel_other", 1, 2, [0], None, "cancel"),
        ("terminate_other", 2, 1, [1], "replaced_by_newer", "terminate"),
    ],
)
def test_what_becomes_of_ticks(overlap, ticks, open_count, runs, reason, ending):
    fires = _fires(ticks)
    decision = decide_overlap(overlap, fires, open_count)
    assert list(decision.runs) == [fires[number] for number in runs]
    assert list(decision.skipped) == [fire for fire in fires if fire not in decision.runs]
    assert not decision.skipped or decision.reason == reason
    assert decision.ending == ending
