"""A database, and changes to be read from it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota.store.database import Database, DatabaseOptions


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(DatabaseOptions(database_url))
    await opened.open()
    yield opened
    await opened.close()
