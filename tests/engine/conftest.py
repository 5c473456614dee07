"""The stage of the engine's tests, on each database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engine.invariants import find_faults
from tests.engine.stage import Stage, open_stage


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    """A node on a fresh database. Whatever a test does there, the invariants hold afterwards."""
    async with open_stage(database_url) as opened:
        yield opened
        faults = await find_faults(opened.database)
        assert not faults, faults
