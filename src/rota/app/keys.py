"""API keys without a server: the first one has to come from somewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rota.app.files import hold_file, prepare_database
from rota.domain.api_key import NewKey
from rota.engine.engine import Engine
from rota.engine.keys import CreatedKey
from rota.settings import Settings, choose_database_url, find_database_file
from rota.store import api_keys, audit
from rota.store.audit import Entry
from rota.store.database import Database, DatabaseOptions
from rota.store.reads.pages import Listing, PageRequest

COMMAND_LINE = "command line"


async def create_key(settings: Settings, wanted: NewKey) -> CreatedKey:
    """Makes a key in the database of these settings, which is made first if there is none."""
    async with _open_engine(settings, migrates=True) as engine:
        created = await engine.custody.create_key(wanted, created_by=COMMAND_LINE)
        await _note(engine, "create_api_key", created.id)
        return created


async def list_keys(settings: Settings, page: PageRequest, *, includes_revoked: bool) -> Listing:
    async with _open_engine(settings) as engine:
        return await engine.database.read(lambda tx: api_keys.list_keys(tx, page, includes_revoked=includes_revoked))


async def revoke_key(settings: Settings, reference: str) -> str:
    async with _open_engine(settings) as engine:
        key_id = await engine.custody.revoke_key(reference)
        await _note(engine, "revoke_api_key", key_id)
        return key_id


async def _note(engine: Engine, action: str, key_id: str) -> None:
    entry = Entry("", COMMAND_LINE, "local", "", action, "api-keys", key_id)
    await engine.database.transact(lambda tx: audit.insert_entries(tx, [entry]))


@asynccontextmanager
async def _open_engine(settings: Settings, *, migrates: bool = False) -> AsyncIterator[Engine]:
    url = choose_database_url(settings)
    with hold_file(find_database_file(url)):
        prepare_database(url, migrates=migrates)
        database = Database(DatabaseOptions(url))
        try:
            yield Engine(database)
        finally:
            await database.close()
