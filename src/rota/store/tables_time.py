"""The tables of what concerns time alone: backfills."""

from __future__ import annotations

from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, String, Table

from rota.store.dialect import Id, Instant, Json, only
from rota.store.schema import cascade, metadata

backfills = Table(
    "backfills",
    metadata,
    Column("id", Id, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("workflow_id", Id, cascade("workflows.id"), nullable=False),
    Column("schedule_id", Id, ForeignKey("schedules.id", ondelete="SET NULL")),
    # Rule and version as they were when it was asked for.
    Column("version_id", Id, cascade("workflow_versions.id"), nullable=False),
    Column("spec", Json, nullable=False),
    Column("anchor_at", Instant, nullable=False),
    Column("from_at", Instant, nullable=False),
    Column("until_at", Instant, nullable=False),
    Column("is_backward", Boolean, nullable=False),
    Column("is_only_missing", Boolean, nullable=False),
    Column("max_active", Integer, nullable=False),
    Column("max_runs", Integer),
    Column("params", Json, nullable=False),
    Column("status", String(20), nullable=False),
    # The ticks up to here (backward: from here on) are decided.
    Column("cursor_at", Instant, nullable=False),
    # Null when there are too many to count.
    Column("tick_count", Integer),
    Column("created_count", Integer, nullable=False, server_default="0"),
    Column("skipped_count", Integer, nullable=False, server_default="0"),
    Column("created_at", Instant, nullable=False),
    Column("finished_at", Instant),
    CheckConstraint("status IN ('running', 'paused', 'done', 'cancelled')", name="status"),
    CheckConstraint("max_active > 0", name="max_active"),
    Index("ix_backfills_workflow_id_id", "workflow_id", "id"),
    Index("ix_backfills_going", "id", **only("status = 'running'")),
)
