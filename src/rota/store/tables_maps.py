"""The table of mapped tasks and how far their items are."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, PrimaryKeyConstraint, Table

from rota.store.dialect import Id, Json, only
from rota.store.schema import cascade, metadata

# One row for each mapped task that has its items, as long as its run.
task_maps = Table(
    "task_maps",
    metadata,
    Column("run_id", Id, cascade("workflow_runs.id"), nullable=False),
    Column("task_id", Id, nullable=False),
    # The task run that stands for all items, and which of its attempts holds them.
    Column("task_run_id", Id, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("total", Integer, nullable=False),
    # How many have a task run; the other items wait in `items`, which is null when all have.
    Column("created", Integer, nullable=False),
    Column("items", Json),
    # How many may be on their way at once.
    Column("concurrency", Integer),
    # Items that are not final; the mapped task ends in the transaction that brings this to zero.
    Column("remaining", Integer, nullable=False),
    # Task runs among these that wait for others.
    Column("waiting", Integer, nullable=False),
    Column("failed", Integer, nullable=False, server_default="0"),
    Column("cancelled", Integer, nullable=False, server_default="0"),
    Column("skipped", Integer, nullable=False, server_default="0"),
    PrimaryKeyConstraint("run_id", "task_id"),
    CheckConstraint("remaining >= 0 AND waiting >= 0 AND waiting <= remaining", name="remaining"),
    Index("ix_task_maps_unfinished", "run_id", "task_id", **only("items IS NOT NULL")),
)
