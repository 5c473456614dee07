"""The short form: a little of every disturbance, on both databases."""

from __future__ import annotations

import pytest

from tests.chaos.scenario import weather_storm
from tests.chaos.trees import cancel_trees

# What goes wrong is to be told by the report, which waits for the work to drain, and not by an end in the middle.
pytestmark = pytest.mark.timeout(300)
STORM_SECONDS = 12.0
SEED = 7


async def test_a_storm_loses_nothing_and_leaves_nothing(tmp_path, database_url):
    report = await weather_storm(tmp_path / "storm", database_url, seconds=STORM_SECONDS, seed=SEED)
    assert not report.faults, report.show()
    assert report.counts["runs submitted: 201"] > 0
    assert report.counts["attempts lost"] > 0, report.show()


async def test_cancelled_trees_are_dead(tmp_path, database_url):
    report, _took_seconds = await cancel_trees(tmp_path / "trees", database_url)
    assert not report.faults, report.show()
