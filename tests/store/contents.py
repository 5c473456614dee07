"""Everything that a database holds, as text, to be searched for what must not be there."""

from __future__ import annotations

from sqlalchemy import select

from rota.store.database import Database, Transaction
from rota.store.schema import metadata


async def find_tables_with(database: Database, *words: str) -> list[str]:
    """The tables in which one of these words stands."""

    async def read(transaction: Transaction) -> list[str]:
        found = []
        for table in metadata.sorted_tables:
            content = repr(await transaction.rows(select(table)))
            if any(word in content for word in words):
                found.append(table.name)
        return found

    return await database.read(read)
