"""The tables of limits that people set: pools, and what may start of queues."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    false,
)

from rota.store.dialect import Instant
from rota.store.schema import metadata

pools = Table(
    "pools",
    metadata,
    Column("namespace", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("slots", Integer, nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    PrimaryKeyConstraint("namespace", "name"),
    CheckConstraint("slots > 0", name="slots"),
)

# What somebody has said about a queue. A queue needs no row to be used.
queues = Table(
    "queues",
    metadata,
    Column("namespace", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("description", Text, nullable=False, server_default=""),
    Column("is_paused", Boolean, nullable=False, server_default=false()),
    Column("rate_starts", Integer),
    Column("rate_seconds", Float),
    Column("rate_burst", Integer),
    # When as many starts will have been earned as were made.
    Column("paid_at", Instant),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    PrimaryKeyConstraint("namespace", "name"),
    CheckConstraint("rate_starts > 0 AND rate_seconds > 0 AND rate_burst > 0", name="rate"),
)
