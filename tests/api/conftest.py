"""A server for each test, on each database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from tests.api.server import Server, open_server


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Faults of the server are shown without the values of all variables, which are many."""
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, plain])
    yield
    structlog.reset_defaults()


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[Server]:
    async with open_server(database_url) as opened:
        yield opened
