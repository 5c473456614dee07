"""The tables of the service itself: workers, nodes, leases, secrets, access, audit."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    false,
)

from rota.domain.states import WorkerState
from rota.store.dialect import Id, Instant, Json, Serial, only
from rota.store.schema import metadata, one_of

workers = Table(
    "workers",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("incarnation", String(36), nullable=False),
    Column("hostname", String(255), nullable=False),
    Column("queues", Json, nullable=False),
    Column("kinds", Json, nullable=False),
    Column("labels", Json, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("software_version", String(40), nullable=False, server_default=""),
    Column("status", String(20), nullable=False),
    Column("is_drain_requested", Boolean, nullable=False, server_default=false()),
    Column("started_at", Instant, nullable=False),
    Column("last_heartbeat", Instant, nullable=False),
    Column("lease_expires_at", Instant, nullable=False),
    Column("finished_at", Instant),
    one_of("status", WorkerState),
    Index("ix_workers_name_id", "name", "id"),
    Index("ix_workers_lease", "lease_expires_at", **only("status <> 'inactive'")),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("url", Text, nullable=False, server_default=""),
    Column("roles", Json, nullable=False),
    Column("software_version", String(40), nullable=False, server_default=""),
    Column("status", String(20), nullable=False),
    # What the node measures of itself.
    Column("report", Json, nullable=False, server_default="{}"),
    Column("started_at", Instant, nullable=False),
    Column("last_heartbeat", Instant, nullable=False),
    CheckConstraint("status IN ('active', 'joining', 'left')", name="status"),
    Index("ix_nodes_name", "name"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("holder", Id, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("acquired_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
)

# Where events are delivered to, and how far each of these has come.
event_sinks = Table(
    "event_sinks",
    metadata,
    Column("name", String(200), primary_key=True),
    # Everything up to this change has been delivered.
    Column("seq", BigInteger, nullable=False),
    # In a row, since when, and why the last one.
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("failing_since", Instant),
    Column("error", Text),
    Column("disabled_at", Instant),
    Column("updated_at", Instant, nullable=False),
)

secrets = Table(
    "secrets",
    metadata,
    Column("namespace", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    # In base64.
    Column("ciphertext", Text, nullable=False),
    Column("key_id", String(40), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    PrimaryKeyConstraint("namespace", "name"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("prefix", String(20), nullable=False),
    Column("key_hash", String(64), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("namespaces", Json, nullable=False),
    Column("created_by", String(200), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    # At most once a minute.
    Column("last_used_at", Instant),
    # The audit log and approvals name keys by their names.
    Index("ix_api_keys_name", "name", unique=True, **only("revoked_at IS NULL")),
)

# What a signed-in browser shows instead of a key, and tickets that are good for one WebSocket.
sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("is_ticket", Boolean, nullable=False),
    Column("principal", Json, nullable=False),
    # Of the key that it was made with: it lasts no longer than that.
    Column("key_hash", String(64)),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Index("ix_sessions_expires_at", "expires_at"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    Column("namespace", String(200), nullable=False),
    Column("actor", String(200), nullable=False),
    Column("actor_kind", String(20), nullable=False),
    Column("address", String(100), nullable=False, server_default=""),
    Column("action", String(100), nullable=False),
    Column("entity_type", String(40), nullable=False),
    Column("entity_id", String(200), nullable=False),
    Column("details", Json),
    Column("created_at", Instant, nullable=False),
    Index("ix_audit_log_namespace_seq", "namespace", "seq"),
    sqlite_autoincrement=True,
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("namespace", String(200), nullable=False),
    Column("key", String(255), nullable=False),
    Column("request_hash", String(64), nullable=False),
    Column("response_status", Integer),
    Column("response_body", Json),
    Column("created_at", Instant, nullable=False),
    PrimaryKeyConstraint("namespace", "key"),
    Index("ix_idempotency_keys_created_at", "created_at"),
)
