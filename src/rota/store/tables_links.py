"""The tables of what workflows have to do with one another, and of what runs are found by."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, PrimaryKeyConstraint, String, Table

from rota.store.dialect import Id, only
from rota.store.schema import cascade, metadata

# Which workflows start runs of which others, by the current versions: by a task (`call`), or by their end (`end`).
workflow_links = Table(
    "workflow_links",
    metadata,
    # The workflow whose definition says so, and the place there.
    Column("workflow_id", Id, cascade("workflows.id"), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("position", Integer, nullable=False),
    # The other one, which need not exist.
    Column("namespace", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    # For `end`: how its run must end.
    Column("status", String(20)),
    PrimaryKeyConstraint("workflow_id", "kind", "position"),
    CheckConstraint("kind IN ('call', 'end')", name="kind"),
    Index("ix_workflow_links_listeners", "namespace", "name", **only("kind = 'end'")),
)

# What people write on runs; `workflow_runs.labels` has the same, for reading.
run_labels = Table(
    "run_labels",
    metadata,
    Column("run_id", Id, cascade("workflow_runs.id"), nullable=False),
    Column("namespace", String(200), nullable=False),
    Column("key", String(63), nullable=False),
    Column("value", String(200), nullable=False),
    PrimaryKeyConstraint("run_id", "key"),
    Index("ix_run_labels_key_value", "namespace", "key", "value", "run_id"),
)
