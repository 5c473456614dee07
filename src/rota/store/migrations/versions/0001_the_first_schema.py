"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from rota.store.dialect import Id, Instant, Json, Serial

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("prefix", sa.String(length=20), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("namespaces", Json(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("expires_at", Instant(), nullable=True),
        sa.Column("revoked_at", Instant(), nullable=True),
        sa.Column("last_used_at", Instant(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_index(
        "ix_api_keys_name",
        "api_keys",
        ["name"],
        unique=True,
        postgresql_where=sa.text("revoked_at IS NULL"),
        sqlite_where=sa.text("revoked_at IS NULL"),
    )
    op.create_table(
        "audit_log",
        sa.Column("seq", Serial, autoincrement=True, nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("actor_kind", sa.String(length=20), nullable=False),
        sa.Column("address", sa.String(length=100), server_default="", nullable=False),
        sa.Column("action", sa.String(length=100), nullable=False),
        sa.Column("entity_type", sa.String(length=40), nullable=False),
        sa.Column("entity_id", sa.String(length=200), nullable=False),
        sa.Column("details", Json(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit_log")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_log_namespace_seq", "audit_log", ["namespace", "seq"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response_body", Json(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "event_sinks",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failing_since", Instant(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("disabled_at", Instant(), nullable=True),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_event_sinks")),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("holder", Id(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("acquired_at", Instant(), nullable=False),
        sa.Column("expires_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "nodes",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("url", sa.Text(), server_default="", nullable=False),
        sa.Column("roles", Json(), nullable=False),
        sa.Column("software_version", sa.String(length=40), server_default="", nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("report", Json(), server_default="{}", nullable=False),
        sa.Column("started_at", Instant(), nullable=False),
        sa.Column("last_heartbeat", Instant(), nullable=False),
        sa.CheckConstraint("status IN ('active', 'joining', 'left')", name=op.f("ck_nodes_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_index("ix_nodes_name", "nodes", ["name"], unique=False)
    op.create_table(
        "pools",
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.CheckConstraint("slots > 0", name=op.f("ck_pools_slots")),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_pools")),
    )
    op.create_table(
        "queues",
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("is_paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("rate_starts", sa.Integer(), nullable=True),
        sa.Column("rate_seconds", sa.Float(), nullable=True),
        sa.Column("rate_burst", sa.Integer(), nullable=True),
        sa.Column("paid_at", Instant(), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.CheckConstraint("rate_starts > 0 AND rate_seconds > 0 AND rate_burst > 0", name=op.f("ck_queues_rate")),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_queues")),
    )
    op.create_table(
        "secrets",
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("is_ticket", sa.Boolean(), nullable=False),
        sa.Column("principal", Json(), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=True),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("expires_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"], unique=False)
    op.create_table(
        "state_history",
        sa.Column("seq", Serial, autoincrement=True, nullable=False),
        sa.Column("entity_type", sa.String(length=20), nullable=False),
        sa.Column("entity_id", Id(), nullable=False),
        sa.Column("root_id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("old_state", sa.String(length=20), nullable=True),
        sa.Column("new_state", sa.String(length=20), nullable=False),
        sa.Column("changed_at", Instant(), nullable=False),
        sa.Column("metadata", Json(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_state_history")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_state_history_root_id_seq", "state_history", ["root_id", "seq"], unique=False)
    op.create_table(
        "workers",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("incarnation", sa.String(length=36), nullable=False),
        sa.Column("hostname", sa.String(length=255), nullable=False),
        sa.Column("queues", Json(), nullable=False),
        sa.Column("kinds", Json(), nullable=False),
        sa.Column("labels", Json(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("software_version", sa.String(length=40), server_default="", nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("is_drain_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("started_at", Instant(), nullable=False),
        sa.Column("last_heartbeat", Instant(), nullable=False),
        sa.Column("lease_expires_at", Instant(), nullable=False),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.CheckConstraint("status IN ('active', 'draining', 'inactive')", name=op.f("ck_workers_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index(
        "ix_workers_lease",
        "workers",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("status <> 'inactive'"),
        sqlite_where=sa.text("status <> 'inactive'"),
    )
    op.create_index("ix_workers_name_id", "workers", ["name", "id"], unique=False)
    op.create_table(
        "workflows",
        sa.Column("id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), server_default="workflow", nullable=False),
        sa.Column("description", sa.Text(), server_default="", nullable=False),
        sa.Column("tags", Json(), server_default="[]", nullable=False),
        sa.Column("is_active", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("max_active_runs", sa.Integer(), nullable=True),
        sa.Column("max_active_tasks", sa.Integer(), nullable=True),
        sa.Column("current_version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("current_version_id", Id(), nullable=True),
        sa.Column("resumed_at", Instant(), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.CheckConstraint("kind IN ('workflow', 'job')", name=op.f("ck_workflows_kind")),
        sa.CheckConstraint("max_active_runs > 0", name=op.f("ck_workflows_max_active_runs")),
        sa.CheckConstraint("max_active_tasks > 0", name=op.f("ck_workflows_max_active_tasks")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
    )
    op.create_index("ix_workflows_namespace_kind_id", "workflows", ["namespace", "kind", "id"], unique=False)
    op.create_index(
        "uq_workflows_namespace_name",
        "workflows",
        ["namespace", "name"],
        unique=True,
        postgresql_where=sa.text("kind = 'workflow'"),
        sqlite_where=sa.text("kind = 'workflow'"),
    )
    op.create_table(
        "lanes",
        sa.Column("id", Serial, autoincrement=True, nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("queue", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("labels", Json(), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=True),
        sa.Column("workflow_id", Id(), nullable=True),
        sa.Column("pool_slots", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_lanes_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lanes")),
        sa.UniqueConstraint("key", name=op.f("uq_lanes_key")),
    )
    op.create_index(
        "ix_lanes_pool",
        "lanes",
        ["namespace", "pool"],
        unique=False,
        postgresql_where=sa.text("pool IS NOT NULL"),
        sqlite_where=sa.text("pool IS NOT NULL"),
    )
    op.create_index(
        "ix_lanes_workflow_id",
        "lanes",
        ["workflow_id"],
        unique=False,
        postgresql_where=sa.text("workflow_id IS NOT NULL"),
        sqlite_where=sa.text("workflow_id IS NOT NULL"),
    )
    op.create_table(
        "schedules",
        sa.Column("id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("spec", Json(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("is_paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("paused_reason", sa.Text(), server_default="", nullable=False),
        sa.Column("resumed_at", Instant(), nullable=True),
        sa.Column("missed_at", Instant(), nullable=True),
        sa.Column("anchor_at", Instant(), nullable=False),
        sa.Column("cursor_at", Instant(), nullable=False),
        sa.Column("next_due_at", Instant(), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("updated_at", Instant(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_schedules_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("workflow_id", "position", name=op.f("uq_schedules_workflow_id_position")),
    )
    op.create_index(
        "ix_schedules_due",
        "schedules",
        ["next_due_at"],
        unique=False,
        postgresql_where=sa.text("is_active AND next_due_at IS NOT NULL"),
        sqlite_where=sa.text("is_active AND next_due_at IS NOT NULL"),
    )
    op.create_table(
        "workflow_links",
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=True),
        sa.CheckConstraint("kind IN ('call', 'end')", name=op.f("ck_workflow_links_kind")),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_workflow_links_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workflow_id", "kind", "position", name=op.f("pk_workflow_links")),
    )
    op.create_index(
        "ix_workflow_links_listeners",
        "workflow_links",
        ["namespace", "name"],
        unique=False,
        postgresql_where=sa.text("kind = 'end'"),
        sqlite_where=sa.text("kind = 'end'"),
    )
    op.create_table(
        "workflow_versions",
        sa.Column("id", Id(), nullable=False),
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.String(length=64), nullable=False),
        sa.Column("spec", Json(), nullable=False),
        sa.Column("run_timeout_seconds", sa.Float(), nullable=True),
        sa.Column("params", Json(), nullable=True),
        sa.Column("is_watched", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workflow_id"],
            ["workflows.id"],
            name=op.f("fk_workflow_versions_workflow_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_versions")),
        sa.UniqueConstraint("workflow_id", "number", name=op.f("uq_workflow_versions_workflow_id_number")),
    )
    op.create_table(
        "tasks",
        sa.Column("id", Id(), nullable=False),
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("version_id", Id(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("spec", Json(), nullable=False),
        sa.Column("trigger_rule", sa.String(length=40), nullable=False),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("max_deliveries", sa.Integer(), nullable=False),
        sa.Column("timeout_seconds", sa.Float(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("is_limited", sa.Boolean(), nullable=False),
        sa.Column("is_teardown", sa.Boolean(), nullable=False),
        sa.Column("is_gated", sa.Boolean(), nullable=False),
        sa.Column("is_branch", sa.Boolean(), nullable=False),
        sa.Column("upstream_count", sa.Integer(), nullable=False),
        sa.Column("downstream_count", sa.Integer(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.CheckConstraint(
            "trigger_rule IN ('all_done', 'all_failed', 'all_success', 'always', 'none_failed', 'none_failed_min_one_success', 'one_failed', 'one_success')",
            name=op.f("ck_tasks_trigger_rule"),
        ),
        sa.ForeignKeyConstraint(["lane_id"], ["lanes.id"], name=op.f("fk_tasks_lane_id")),
        sa.ForeignKeyConstraint(
            ["version_id"], ["workflow_versions.id"], name=op.f("fk_tasks_version_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_tasks_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("version_id", "name", name=op.f("uq_tasks_version_id_name")),
        sa.UniqueConstraint("version_id", "position", name=op.f("uq_tasks_version_id_position")),
    )
    op.create_index("ix_tasks_workflow_id", "tasks", ["workflow_id"], unique=False)
    op.create_table(
        "backfills",
        sa.Column("id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("schedule_id", Id(), nullable=True),
        sa.Column("version_id", Id(), nullable=False),
        sa.Column("spec", Json(), nullable=False),
        sa.Column("anchor_at", Instant(), nullable=False),
        sa.Column("from_at", Instant(), nullable=False),
        sa.Column("until_at", Instant(), nullable=False),
        sa.Column("is_backward", sa.Boolean(), nullable=False),
        sa.Column("is_only_missing", sa.Boolean(), nullable=False),
        sa.Column("max_active", sa.Integer(), nullable=False),
        sa.Column("max_runs", sa.Integer(), nullable=True),
        sa.Column("params", Json(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("cursor_at", Instant(), nullable=False),
        sa.Column("tick_count", sa.Integer(), nullable=True),
        sa.Column("created_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("skipped_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.CheckConstraint("max_active > 0", name=op.f("ck_backfills_max_active")),
        sa.CheckConstraint("status IN ('running', 'paused', 'done', 'cancelled')", name=op.f("ck_backfills_status")),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_backfills_schedule_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["version_id"], ["workflow_versions.id"], name=op.f("fk_backfills_version_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_backfills_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_backfills")),
    )
    op.create_index("ix_backfills_workflow_id_id", "backfills", ["workflow_id", "id"], unique=False)
    op.create_index(
        "ix_backfills_going",
        "backfills",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )
    op.create_table(
        "workflow_runs",
        sa.Column("id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("version_id", Id(), nullable=False),
        sa.Column("schedule_id", Id(), nullable=True),
        sa.Column("backfill_id", Id(), nullable=True),
        sa.Column("trigger", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("logical_date", Instant(), nullable=False),
        sa.Column("params", Json(), server_default="{}", nullable=False),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.Column("labels", Json(), nullable=True),
        sa.Column("rerun_of", Id(), nullable=True),
        sa.Column("task_count", sa.Integer(), nullable=False),
        sa.Column("remaining", sa.Integer(), nullable=False),
        sa.Column("failed_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("is_limited", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("is_serial", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("is_watched", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("reviewed_at", Instant(), nullable=True),
        sa.Column("cancel_requested_at", Instant(), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("timeout_seconds", sa.Float(), nullable=True),
        sa.Column("deadline_at", Instant(), nullable=True),
        sa.Column("parent_run_id", Id(), nullable=True),
        sa.Column("parent_task_run_id", Id(), nullable=True),
        sa.Column("parent_attempt", sa.Integer(), nullable=True),
        sa.Column("depth", sa.Integer(), server_default="0", nullable=False),
        sa.Column("is_untold", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.Column("started_at", Instant(), nullable=True),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.CheckConstraint(
            "(status IN ('cancelled', 'failed', 'success')) = (finished_at IS NOT NULL)",
            name=op.f("ck_workflow_runs_finished"),
        ),
        sa.CheckConstraint(
            "status IN ('cancelled', 'failed', 'pending', 'running', 'success')",
            name=op.f("ck_workflow_runs_status"),
        ),
        sa.CheckConstraint("remaining >= 0", name=op.f("ck_workflow_runs_remaining")),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["backfills.id"], name=op.f("fk_workflow_runs_backfill_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_workflow_runs_schedule_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["workflow_versions.id"],
            name=op.f("fk_workflow_runs_version_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["workflow_id"], ["workflows.id"], name=op.f("fk_workflow_runs_workflow_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflow_runs")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_workflow_runs_active",
        "workflow_runs",
        ["workflow_id"],
        unique=False,
        postgresql_where=sa.text("status = 'running' AND is_limited"),
        sqlite_where=sa.text("status = 'running' AND is_limited"),
    )
    op.create_index(
        "uq_workflow_runs_backfill",
        "workflow_runs",
        ["backfill_id", "logical_date"],
        unique=True,
        postgresql_where=sa.text("backfill_id IS NOT NULL"),
        sqlite_where=sa.text("backfill_id IS NOT NULL"),
    )
    op.create_index(
        "ix_workflow_runs_ahead",
        "workflow_runs",
        ["schedule_id"],
        unique=False,
        postgresql_where=sa.text("schedule_id IS NOT NULL AND finished_at IS NULL"),
        sqlite_where=sa.text("schedule_id IS NOT NULL AND finished_at IS NULL"),
    )
    op.create_index(
        "ix_workflow_runs_deadline",
        "workflow_runs",
        ["deadline_at"],
        unique=False,
        postgresql_where=sa.text("status = 'running' AND deadline_at IS NOT NULL"),
        sqlite_where=sa.text("status = 'running' AND deadline_at IS NOT NULL"),
    )
    op.create_index(
        "ix_workflow_runs_finished",
        "workflow_runs",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NOT NULL"),
        sqlite_where=sa.text("finished_at IS NOT NULL"),
    )
    op.create_index(
        "ix_workflow_runs_logical_date",
        "workflow_runs",
        ["workflow_id", "logical_date"],
        unique=False,
        postgresql_where=sa.text("schedule_id IS NULL"),
        sqlite_where=sa.text("schedule_id IS NULL"),
    )
    op.create_index(
        "ix_workflow_runs_unreviewed",
        "workflow_runs",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("is_watched AND reviewed_at IS NULL AND finished_at IS NOT NULL"),
        sqlite_where=sa.text("is_watched AND reviewed_at IS NULL AND finished_at IS NOT NULL"),
    )
    op.create_index(
        "ix_workflow_runs_untold",
        "workflow_runs",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("is_untold"),
        sqlite_where=sa.text("is_untold"),
    )
    op.create_index(
        "ix_workflow_runs_waiting",
        "workflow_runs",
        ["workflow_id", "created_at", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.create_index("ix_workflow_runs_workflow_id_id", "workflow_runs", ["workflow_id", "id"], unique=False)
    op.create_index("ix_workflow_runs_namespace_id", "workflow_runs", ["namespace", "id"], unique=False)
    op.create_index(
        "ix_workflow_runs_rare_ends",
        "workflow_runs",
        ["namespace", "status", "id"],
        unique=False,
        postgresql_where=sa.text("status IN ('cancelled', 'failed')"),
        sqlite_where=sa.text("status IN ('cancelled', 'failed')"),
    )
    op.create_index(
        "uq_workflow_runs_child",
        "workflow_runs",
        ["parent_task_run_id", "parent_attempt"],
        unique=True,
        postgresql_where=sa.text("parent_task_run_id IS NOT NULL"),
        sqlite_where=sa.text("parent_task_run_id IS NOT NULL"),
    )
    op.create_index(
        "uq_workflow_runs_listener",
        "workflow_runs",
        ["parent_run_id", "workflow_id"],
        unique=True,
        postgresql_where=sa.text("parent_run_id IS NOT NULL AND parent_task_run_id IS NULL"),
        sqlite_where=sa.text("parent_run_id IS NOT NULL AND parent_task_run_id IS NULL"),
    )
    op.create_index(
        "uq_workflow_runs_tick",
        "workflow_runs",
        ["schedule_id", "logical_date"],
        unique=True,
        postgresql_where=sa.text("schedule_id IS NOT NULL"),
        sqlite_where=sa.text("schedule_id IS NOT NULL"),
    )
    op.create_table(
        "run_labels",
        sa.Column("run_id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["workflow_runs.id"], name=op.f("fk_run_labels_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_run_labels")),
    )
    op.create_index("ix_run_labels_key_value", "run_labels", ["namespace", "key", "value", "run_id"], unique=False)
    op.create_table(
        "task_dependencies",
        sa.Column("id", Id(), nullable=False),
        sa.Column("version_id", Id(), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("depends_on_task_id", Id(), nullable=False),
        sa.CheckConstraint("task_id <> depends_on_task_id", name=op.f("ck_task_dependencies_not_itself")),
        sa.ForeignKeyConstraint(
            ["depends_on_task_id"],
            ["tasks.id"],
            name=op.f("fk_task_dependencies_depends_on_task_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["task_id"], ["tasks.id"], name=op.f("fk_task_dependencies_task_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["version_id"],
            ["workflow_versions.id"],
            name=op.f("fk_task_dependencies_version_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_dependencies")),
        sa.UniqueConstraint(
            "task_id", "depends_on_task_id", name=op.f("uq_task_dependencies_task_id_depends_on_task_id")
        ),
    )
    op.create_index(
        "ix_task_dependencies_depends_on_task_id", "task_dependencies", ["depends_on_task_id"], unique=False
    )
    op.create_index("ix_task_dependencies_version_id", "task_dependencies", ["version_id"], unique=False)
    op.create_table(
        "task_runs",
        sa.Column("id", Id(), nullable=False),
        sa.Column("run_id", Id(), nullable=False),
        sa.Column("namespace", sa.String(length=200), nullable=False),
        sa.Column("workflow_id", Id(), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("map_index", sa.Integer(), server_default="-1", nullable=False),
        sa.Column("item", Json(), nullable=True),
        sa.Column("logical_date", Instant(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("trigger_rule", sa.String(length=40), nullable=False),
        sa.Column("upstream_waiting", sa.Integer(), server_default="0", nullable=False),
        sa.Column("upstream_succeeded", sa.Integer(), server_default="0", nullable=False),
        sa.Column("upstream_failed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("upstream_skipped", sa.Integer(), server_default="0", nullable=False),
        sa.Column("downstream_count", sa.Integer(), nullable=False),
        sa.Column("is_teardown", sa.Boolean(), nullable=False),
        sa.Column("is_gated", sa.Boolean(), nullable=False),
        sa.Column("is_branch", sa.Boolean(), nullable=False),
        sa.Column("lane_id", sa.BigInteger(), nullable=False),
        sa.Column("concurrency_key", sa.String(length=200), nullable=True),
        sa.Column("key_state", sa.String(length=20), nullable=True),
        sa.Column("claim_rank", sa.BigInteger(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("is_limited", sa.Boolean(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("failure_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_deliveries", sa.Integer(), nullable=False),
        sa.Column("lost_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("timeout_seconds", sa.Float(), nullable=True),
        sa.Column("due_at", Instant(), nullable=True),
        sa.Column("queued_at", Instant(), nullable=True),
        sa.Column("started_at", Instant(), nullable=True),
        sa.Column("finished_at", Instant(), nullable=True),
        sa.Column("worker_id", Id(), nullable=True),
        sa.Column("incarnation", sa.String(length=36), nullable=True),
        sa.Column("lease_expires_at", Instant(), nullable=True),
        sa.Column("holder", sa.String(length=20), nullable=True),
        sa.Column("waiting_for", Json(), nullable=True),
        sa.Column("is_calling", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("cancel_requested_at", Instant(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error_type", sa.String(length=40), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("output", Json(), nullable=True),
        sa.Column("usage", Json(), nullable=True),
        sa.Column("is_unconfirmed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL OR holder IS NOT NULL)",
            name=op.f("ck_task_runs_leased"),
        ),
        sa.CheckConstraint("lease_expires_at IS NULL OR holder IS NULL", name=op.f("ck_task_runs_held")),
        sa.CheckConstraint("key_state IN ('held', 'new', 'released', 'waiting')", name=op.f("ck_task_runs_key_state")),
        sa.CheckConstraint("holder IN ('approval', 'items', 'poll', 'run', 'wait')", name=op.f("ck_task_runs_holder")),
        sa.CheckConstraint(
            "(status IN ('cancelled', 'failed', 'skipped', 'success', 'upstream_failed')) = (finished_at IS NOT NULL)",
            name=op.f("ck_task_runs_finished"),
        ),
        sa.CheckConstraint("status <> 'queued' OR claim_rank IS NOT NULL", name=op.f("ck_task_runs_ranked")),
        sa.CheckConstraint("status <> 'retrying' OR due_at IS NOT NULL", name=op.f("ck_task_runs_due")),
        sa.CheckConstraint(
            "status IN ('cancelled', 'failed', 'pending', 'queued', 'retrying', 'running', 'skipped', 'success', 'upstream_failed')",
            name=op.f("ck_task_runs_status"),
        ),
        sa.CheckConstraint("upstream_waiting >= 0", name=op.f("ck_task_runs_waiting")),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name=op.f("fk_task_runs_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_runs")),
        sa.UniqueConstraint("run_id", "task_id", "map_index", name=op.f("uq_task_runs_run_id_task_id_map_index")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_task_runs_approvals",
        "task_runs",
        ["namespace", "id"],
        unique=False,
        postgresql_where=sa.text("holder = 'approval'"),
        sqlite_where=sa.text("holder = 'approval'"),
    )
    op.create_index(
        "ix_task_runs_calls",
        "task_runs",
        ["id"],
        unique=False,
        postgresql_where=sa.text("is_calling AND (holder IS NULL OR cancel_requested_at IS NOT NULL)"),
        sqlite_where=sa.text("is_calling AND (holder IS NULL OR cancel_requested_at IS NOT NULL)"),
    )
    op.create_index(
        "ix_task_runs_claim",
        "task_runs",
        ["lane_id", "claim_rank", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'queued'"),
        sqlite_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "ix_task_runs_dead",
        "task_runs",
        ["namespace", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'failed'"),
        sqlite_where=sa.text("status = 'failed'"),
    )
    op.create_index(
        "ix_task_runs_due",
        "task_runs",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("status = 'retrying'"),
        sqlite_where=sa.text("status = 'retrying'"),
    )
    op.create_index(
        "ix_task_runs_expiry",
        "task_runs",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("status = 'queued' AND due_at IS NOT NULL"),
        sqlite_where=sa.text("status = 'queued' AND due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_task_runs_key_left",
        "task_runs",
        ["id"],
        unique=False,
        postgresql_where=sa.text("key_state = 'held' AND status <> 'queued' AND status <> 'running'"),
        sqlite_where=sa.text("key_state = 'held' AND status <> 'queued' AND status <> 'running'"),
    )
    op.create_index(
        "ix_task_runs_key_new",
        "task_runs",
        ["claim_rank", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'queued' AND key_state = 'new'"),
        sqlite_where=sa.text("status = 'queued' AND key_state = 'new'"),
    )
    op.create_index(
        "ix_task_runs_key_waiting",
        "task_runs",
        ["namespace", "concurrency_key", "claim_rank", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'queued' AND lane_id = 0"),
        sqlite_where=sa.text("status = 'queued' AND lane_id = 0"),
    )
    op.create_index(
        "uq_task_runs_key",
        "task_runs",
        ["namespace", "concurrency_key"],
        unique=True,
        postgresql_where=sa.text("key_state = 'held' AND concurrency_key IS NOT NULL"),
        sqlite_where=sa.text("key_state = 'held' AND concurrency_key IS NOT NULL"),
    )
    op.create_index(
        "ix_task_runs_held",
        "task_runs",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("holder <> 'poll' AND due_at IS NOT NULL"),
        sqlite_where=sa.text("holder <> 'poll' AND due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_task_runs_items",
        "task_runs",
        ["run_id", "task_id", "map_index"],
        unique=False,
        postgresql_where=sa.text("status = 'pending' AND map_index >= 0"),
        sqlite_where=sa.text("status = 'pending' AND map_index >= 0"),
    )
    op.create_index(
        "ix_task_runs_lease",
        "task_runs",
        ["lease_expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'running' AND holder IS NULL"),
        sqlite_where=sa.text("status = 'running' AND holder IS NULL"),
    )
    op.create_index(
        "ix_task_runs_polls",
        "task_runs",
        ["due_at"],
        unique=False,
        postgresql_where=sa.text("holder = 'poll' AND due_at IS NOT NULL"),
        sqlite_where=sa.text("holder = 'poll' AND due_at IS NOT NULL"),
    )
    op.create_index(
        "ix_task_runs_slots",
        "task_runs",
        ["lane_id"],
        unique=False,
        postgresql_where=sa.text("status = 'running' AND is_limited AND holder IS NULL"),
        sqlite_where=sa.text("status = 'running' AND is_limited AND holder IS NULL"),
    )
    op.create_table(
        "attempts",
        sa.Column("task_run_id", Id(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("run_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("worker_id", Id(), nullable=True),
        sa.Column("incarnation", sa.String(length=36), nullable=True),
        sa.Column("started_at", Instant(), nullable=True),
        sa.Column("finished_at", Instant(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error_type", sa.String(length=40), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("usage", Json(), nullable=True),
        sa.Column("is_unconfirmed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_run_id"], ["task_runs.id"], name=op.f("fk_attempts_task_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_run_id", "attempt", name=op.f("pk_attempts")),
    )
    op.create_table(
        "task_logs",
        sa.Column("task_run_id", Id(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", Instant(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_run_id"], ["task_runs.id"], name=op.f("fk_task_logs_task_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("task_run_id", "attempt", "offset", name=op.f("pk_task_logs")),
    )
    op.create_table(
        "task_maps",
        sa.Column("run_id", Id(), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("task_run_id", Id(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("created", sa.Integer(), nullable=False),
        sa.Column("items", Json(), nullable=True),
        sa.Column("concurrency", sa.Integer(), nullable=True),
        sa.Column("remaining", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), server_default="0", nullable=False),
        sa.Column("cancelled", sa.Integer(), server_default="0", nullable=False),
        sa.Column("skipped", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "remaining >= 0 AND waiting >= 0 AND waiting <= remaining", name=op.f("ck_task_maps_remaining")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name=op.f("fk_task_maps_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "task_id", name=op.f("pk_task_maps")),
    )
    op.create_index(
        "ix_task_maps_unfinished",
        "task_maps",
        ["run_id", "task_id"],
        unique=False,
        postgresql_where=sa.text("items IS NOT NULL"),
        sqlite_where=sa.text("items IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(
        "ix_task_maps_unfinished",
        table_name="task_maps",
        postgresql_where=sa.text("items IS NOT NULL"),
        sqlite_where=sa.text("items IS NOT NULL"),
    )
    op.drop_table("task_maps")
    op.drop_table("task_logs")
    op.drop_table("attempts")
    op.drop_index(
        "ix_task_runs_slots",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'running' AND is_limited AND holder IS NULL"),
        sqlite_where=sa.text("status = 'running' AND is_limited AND holder IS NULL"),
    )
    op.drop_index(
        "ix_task_runs_polls",
        table_name="task_runs",
        postgresql_where=sa.text("holder = 'poll' AND due_at IS NOT NULL"),
        sqlite_where=sa.text("holder = 'poll' AND due_at IS NOT NULL"),
    )
    op.drop_index(
        "ix_task_runs_lease",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'running' AND holder IS NULL"),
        sqlite_where=sa.text("status = 'running' AND holder IS NULL"),
    )
    op.drop_index(
        "uq_task_runs_key",
        table_name="task_runs",
        postgresql_where=sa.text("key_state = 'held' AND concurrency_key IS NOT NULL"),
        sqlite_where=sa.text("key_state = 'held' AND concurrency_key IS NOT NULL"),
    )
    op.drop_index(
        "ix_task_runs_key_waiting",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'queued' AND lane_id = 0"),
        sqlite_where=sa.text("status = 'queued' AND lane_id = 0"),
    )
    op.drop_index(
        "ix_task_runs_key_new",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'queued' AND key_state = 'new'"),
        sqlite_where=sa.text("status = 'queued' AND key_state = 'new'"),
    )
    op.drop_index(
        "ix_task_runs_key_left",
        table_name="task_runs",
        postgresql_where=sa.text("key_state = 'held' AND status <> 'queued' AND status <> 'running'"),
        sqlite_where=sa.text("key_state = 'held' AND status <> 'queued' AND status <> 'running'"),
    )
    op.drop_index(
        "ix_task_runs_expiry",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'queued' AND due_at IS NOT NULL"),
        sqlite_where=sa.text("status = 'queued' AND due_at IS NOT NULL"),
    )
    op.drop_index(
        "ix_task_runs_items",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'pending' AND map_index >= 0"),
        sqlite_where=sa.text("status = 'pending' AND map_index >= 0"),
    )
    op.drop_index(
        "ix_task_runs_held",
        table_name="task_runs",
        postgresql_where=sa.text("holder <> 'poll' AND due_at IS NOT NULL"),
        sqlite_where=sa.text("holder <> 'poll' AND due_at IS NOT NULL"),
    )
    op.drop_index(
        "ix_task_runs_due",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'retrying'"),
        sqlite_where=sa.text("status = 'retrying'"),
    )
    op.drop_index(
        "ix_task_runs_dead",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'failed'"),
        sqlite_where=sa.text("status = 'failed'"),
    )
    op.drop_index(
        "ix_task_runs_claim",
        table_name="task_runs",
        postgresql_where=sa.text("status = 'queued'"),
        sqlite_where=sa.text("status = 'queued'"),
    )
    op.drop_index(
        "ix_task_runs_approvals",
        table_name="task_runs",
        postgresql_where=sa.text("holder = 'approval'"),
        sqlite_where=sa.text("holder = 'approval'"),
    )
    op.drop_index(
        "ix_task_runs_calls",
        table_name="task_runs",
        postgresql_where=sa.text("is_calling AND (holder IS NULL OR cancel_requested_at IS NOT NULL)"),
        sqlite_where=sa.text("is_calling AND (holder IS NULL OR cancel_requested_at IS NOT NULL)"),
    )
    op.drop_table("task_runs")
    op.drop_index("ix_task_dependencies_version_id", table_name="task_dependencies")
    op.drop_index("ix_task_dependencies_depends_on_task_id", table_name="task_dependencies")
    op.drop_index("ix_run_labels_key_value", table_name="run_labels")
    op.drop_table("run_labels")
    op.drop_table("task_dependencies")
    op.drop_index(
        "uq_workflow_runs_tick",
        table_name="workflow_runs",
        postgresql_where=sa.text("schedule_id IS NOT NULL"),
        sqlite_where=sa.text("schedule_id IS NOT NULL"),
    )
    op.drop_index(
        "uq_workflow_runs_listener",
        table_name="workflow_runs",
        postgresql_where=sa.text("parent_run_id IS NOT NULL AND parent_task_run_id IS NULL"),
        sqlite_where=sa.text("parent_run_id IS NOT NULL AND parent_task_run_id IS NULL"),
    )
    op.drop_index(
        "uq_workflow_runs_child",
        table_name="workflow_runs",
        postgresql_where=sa.text("parent_task_run_id IS NOT NULL"),
        sqlite_where=sa.text("parent_task_run_id IS NOT NULL"),
    )
    op.drop_index("ix_workflow_runs_workflow_id_id", table_name="workflow_runs")
    op.drop_index("ix_workflow_runs_namespace_id", table_name="workflow_runs")
    op.drop_index(
        "ix_workflow_runs_rare_ends",
        table_name="workflow_runs",
        postgresql_where=sa.text("status IN ('cancelled', 'failed')"),
        sqlite_where=sa.text("status IN ('cancelled', 'failed')"),
    )
    op.drop_index(
        "ix_workflow_runs_waiting",
        table_name="workflow_runs",
        postgresql_where=sa.text("status = 'pending'"),
        sqlite_where=sa.text("status = 'pending'"),
    )
    op.drop_index(
        "ix_workflow_runs_untold",
        table_name="workflow_runs",
        postgresql_where=sa.text("is_untold"),
        sqlite_where=sa.text("is_untold"),
    )
    op.drop_index(
        "ix_workflow_runs_logical_date",
        table_name="workflow_runs",
        postgresql_where=sa.text("schedule_id IS NULL"),
        sqlite_where=sa.text("schedule_id IS NULL"),
    )
    op.drop_index(
        "ix_workflow_runs_deadline",
        table_name="workflow_runs",
        postgresql_where=sa.text("status = 'running' AND deadline_at IS NOT NULL"),
        sqlite_where=sa.text("status = 'running' AND deadline_at IS NOT NULL"),
    )
    op.drop_index(
        "ix_workflow_runs_active",
        table_name="workflow_runs",
        postgresql_where=sa.text("status = 'running' AND is_limited"),
        sqlite_where=sa.text("status = 'running' AND is_limited"),
    )
    op.drop_table("workflow_runs")
    op.drop_table("backfills")
    op.drop_index("ix_tasks_workflow_id", table_name="tasks")
    op.drop_table("tasks")
    op.drop_table("workflow_versions")
    op.drop_index(
        "ix_workflow_links_listeners",
        table_name="workflow_links",
        postgresql_where=sa.text("kind = 'end'"),
        sqlite_where=sa.text("kind = 'end'"),
    )
    op.drop_table("workflow_links")
    op.drop_index(
        "ix_schedules_due",
        table_name="schedules",
        postgresql_where=sa.text("is_active AND next_due_at IS NOT NULL"),
        sqlite_where=sa.text("is_active AND next_due_at IS NOT NULL"),
    )
    op.drop_table("schedules")
    op.drop_index(
        "ix_lanes_workflow_id",
        table_name="lanes",
        postgresql_where=sa.text("workflow_id IS NOT NULL"),
        sqlite_where=sa.text("workflow_id IS NOT NULL"),
    )
    op.drop_index(
        "ix_lanes_pool",
        table_name="lanes",
        postgresql_where=sa.text("pool IS NOT NULL"),
        sqlite_where=sa.text("pool IS NOT NULL"),
    )
    op.drop_table("lanes")
    op.drop_index(
        "uq_workflows_namespace_name",
        table_name="workflows",
        postgresql_where=sa.text("kind = 'workflow'"),
        sqlite_where=sa.text("kind = 'workflow'"),
    )
    op.drop_index("ix_workflows_namespace_kind_id", table_name="workflows")
    op.drop_table("workflows")
    op.drop_index("ix_workers_name_id", table_name="workers")
    op.drop_index(
        "ix_workers_lease",
        table_name="workers",
        postgresql_where=sa.text("status <> 'inactive'"),
        sqlite_where=sa.text("status <> 'inactive'"),
    )
    op.drop_table("workers")
    op.drop_index("ix_state_history_root_id_seq", table_name="state_history")
    op.drop_table("state_history")
    op.drop_index("ix_sessions_expires_at", table_name="sessions")
    op.drop_table("sessions")
    op.drop_table("secrets")
    op.drop_table("queues")
    op.drop_table("pools")
    op.drop_index("ix_nodes_name", table_name="nodes")
    op.drop_table("nodes")
    op.drop_table("leases")
    op.drop_table("event_sinks")
    op.drop_index("ix_idempotency_keys_created_at", table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index("ix_audit_log_namespace_seq", table_name="audit_log")
    op.drop_table("audit_log")
    op.drop_index(
        "ix_api_keys_name",
        table_name="api_keys",
        postgresql_where=sa.text("revoked_at IS NULL"),
        sqlite_where=sa.text("revoked_at IS NULL"),
    )
    op.drop_table("api_keys")
