"""Runs migrations on the connection that `rota.store.migrate` hands over."""

from __future__ import annotations

from alembic import context

from rota.store.schema import metadata
from rota.store.tables import workflows
from rota.store.tables_limits import pools
from rota.store.tables_links import workflow_links
from rota.store.tables_maps import task_maps
from rota.store.tables_service import nodes
from rota.store.tables_time import backfills

# Importing the modules fills the metadata; naming one table of each keeps the imports honest.
TARGET = {table.metadata for table in (workflows, workflow_links, task_maps, pools, nodes, backfills)} | {metadata}

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
