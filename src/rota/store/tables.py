"""The tables of definitions and runs. `migrations/` must lead to exactly this."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    true,
)

from rota.domain.rules import TriggerRule
from rota.domain.states import RUN_FINAL, TASK_FINAL, Holder, KeyState, RunState, TaskState
from rota.store.dialect import HOT, Id, Instant, Json, Serial, only
from rota.store.schema import cascade, final_means_finished, metadata, one_of

workflows = Table(
    "workflows",
    metadata,
    Column("id", Id, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("kind", String(20), nullable=False, server_default="workflow"),
    Column("description", Text, nullable=False, server_default=""),
    Column("tags", Json, nullable=False, server_default="[]"),
    Column("is_active", Boolean, nullable=False, server_default=true()),
    Column("max_active_runs", Integer),
    Column("max_active_tasks", Integer),
    Column("current_version", Integer, nullable=False, server_default="0"),
    Column("current_version_id", Id),
    # Failures in a row count from here.
    Column("resumed_at", Instant),
    # Counts changes, for optimistic locking by the users of the API.
    Column("version", Integer, nullable=False, server_default="1"),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    CheckConstraint("kind IN ('workflow', 'job')", name="kind"),
    CheckConstraint("max_active_runs > 0", name="max_active_runs"),
    CheckConstraint("max_active_tasks > 0", name="max_active_tasks"),
    Index("uq_workflows_namespace_name", "namespace", "name", unique=True, **only("kind = 'workflow'")),
    Index("ix_workflows_namespace_kind_id", "namespace", "kind", "id"),
)

workflow_versions = Table(
    "workflow_versions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workflow_id", Id, cascade("workflows.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("content_hash", String(64), nullable=False),
    Column("spec", Json, nullable=False),
    Column("run_timeout_seconds", Float),
    # Those that it declares, if any: all that creating a run needs of the spec.
    Column("params", Json),
    # Somebody wants to know how its runs end: alerts, or a pause after failures.
    Column("is_watched", Boolean, nullable=False, server_default=false()),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("workflow_id", "number"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workflow_id", Id, cascade("workflows.id"), nullable=False),
    Column("version_id", Id, cascade("workflow_versions.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", String(200), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("spec", Json, nullable=False),
    Column("trigger_rule", String(40), nullable=False),
    Column("retry_count", Integer, nullable=False),
    Column("max_deliveries", Integer, nullable=False),
    Column("timeout_seconds", Float),
    Column("priority", Integer, nullable=False),
    Column("lane_id", BigInteger, ForeignKey("lanes.id"), nullable=False),
    Column("is_limited", Boolean, nullable=False),
    Column("is_teardown", Boolean, nullable=False),
    Column("is_gated", Boolean, nullable=False),
    Column("is_branch", Boolean, nullable=False),
    Column("upstream_count", Integer, nullable=False),
    Column("downstream_count", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("version_id", "name"),
    UniqueConstraint("version_id", "position"),
    one_of("trigger_rule", TriggerRule),
    Index("ix_tasks_workflow_id", "workflow_id"),
)

task_dependencies = Table(
    "task_dependencies",
    metadata,
    Column("id", Id, primary_key=True),
    Column("version_id", Id, cascade("workflow_versions.id"), nullable=False),
    Column("task_id", Id, cascade("tasks.id"), nullable=False),
    Column("depends_on_task_id", Id, cascade("tasks.id"), nullable=False),
    UniqueConstraint("task_id", "depends_on_task_id"),
    CheckConstraint("task_id <> depends_on_task_id", name="not_itself"),
    Index("ix_task_dependencies_depends_on_task_id", "depends_on_task_id"),
    Index("ix_task_dependencies_version_id", "version_id"),
)

schedules = Table(
    "schedules",
    metadata,
    Column("id", Id, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("workflow_id", Id, cascade("workflows.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("spec", Json, nullable=False),
    # Neither its workflow nor itself is paused.
    Column("is_active", Boolean, nullable=False),
    Column("is_paused", Boolean, nullable=False, server_default=false()),
    Column("paused_reason", Text, nullable=False, server_default=""),
    # Failures in a row count from here.
    Column("resumed_at", Instant),
    # The newest tick that was missed and did not run.
    Column("missed_at", Instant),
    # Intervals count from here.
    Column("anchor_at", Instant, nullable=False),
    # The last logical time that has been decided: fired, skipped or excluded.
    Column("cursor_at", Instant, nullable=False),
    # When to look again; null when nothing more will come.
    Column("next_due_at", Instant),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("workflow_id", "position"),
    Index("ix_schedules_due", "next_due_at", **only("is_active AND next_due_at IS NOT NULL")),
)

workflow_runs = Table(
    "workflow_runs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("namespace", String(200), nullable=False),
    Column("workflow_id", Id, cascade("workflows.id"), nullable=False),
    Column("version_id", Id, cascade("workflow_versions.id"), nullable=False),
    Column("schedule_id", Id, ForeignKey("schedules.id", ondelete="SET NULL")),
    Column("backfill_id", Id, ForeignKey("backfills.id", ondelete="SET NULL")),
    Column("trigger", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("logical_date", Instant, nullable=False),
    Column("params", Json, nullable=False, server_default="{}"),
    Column("note", Text, nullable=False, server_default=""),
    # As in `run_labels`, for reading.
    Column("labels", Json),
    # The run that this one repeats, wholly or in part.
    Column("rerun_of", Id),
    Column("task_count", Integer, nullable=False),
    # Task runs that are not final; the run ends in the transaction that brings this to zero.
    Column("remaining", Integer, nullable=False),
    # Task runs that ended failed or cancelled, clean-up tasks left out.
    Column("failed_count", Integer, nullable=False, server_default="0"),
    # Counts against its workflow's max_active_runs.
    Column("is_limited", Boolean, nullable=False, server_default=false()),
    # Waits until the older runs of its schedule have ended.
    Column("is_serial", Boolean, nullable=False, server_default=false()),
    # Its end is looked at, once: for alerts, and for failures in a row.
    Column("is_watched", Boolean, nullable=False, server_default=false()),
    Column("reviewed_at", Instant),
    Column("cancel_requested_at", Instant),
    Column("cancel_reason", Text),
    Column("timeout_seconds", Float),
    Column("deadline_at", Instant),
    # The run that started it: by a task of its own (and by which attempt of it), or by its end.
    Column("parent_run_id", Id),
    Column("parent_task_run_id", Id),
    Column("parent_attempt", Integer),
    # How many runs stand above it.
    Column("depth", Integer, nullable=False, server_default="0"),
    # It has ended, and those whom that concerns have not been told yet.
    Column("is_untold", Boolean, nullable=False, server_default=false()),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("version", Integer, nullable=False, server_default="1"),
    one_of("status", RunState),
    final_means_finished(RUN_FINAL),
    CheckConstraint("remaining >= 0", name="remaining"),
    Index("uq_workflow_runs_tick", "schedule_id", "logical_date", unique=True, **only("schedule_id IS NOT NULL")),
    Index("ix_workflow_runs_logical_date", "workflow_id", "logical_date", **only("schedule_id IS NULL")),
    Index("ix_workflow_runs_workflow_id_id", "workflow_id", "id"),
    Index("ix_workflow_runs_namespace_id", "namespace", "id"),
    Index("ix_workflow_runs_rare_ends", "namespace", "status", "id", **only("status IN ('cancelled', 'failed')")),
    Index("ix_workflow_runs_waiting", "workflow_id", "created_at", "id", **only("status = 'pending'")),
    Index("ix_workflow_runs_active", "workflow_id", **only("status = 'running' AND is_limited")),
    Index("ix_workflow_runs_deadline", "deadline_at", **only("status = 'running' AND deadline_at IS NOT NULL")),
    Index("uq_workflow_runs_backfill", "backfill_id", "logical_date", unique=True, **only("backfill_id IS NOT NULL")),
    Index("ix_workflow_runs_ahead", "schedule_id", **only("schedule_id IS NOT NULL AND finished_at IS NULL")),
    Index(
        "ix_workflow_runs_unreviewed",
        "finished_at",
        **only("is_watched AND reviewed_at IS NULL AND finished_at IS NOT NULL"),
    ),
    Index("ix_workflow_runs_finished", "finished_at", **only("finished_at IS NOT NULL")),
    Index("ix_workflow_runs_untold", "finished_at", **only("is_untold")),
    Index(
        "uq_workflow_runs_child",
        *("parent_task_run_id", "parent_attempt"),
        unique=True,
        **only("parent_task_run_id IS NOT NULL"),
    ),
    Index(
        "uq_workflow_runs_listener",
        *("parent_run_id", "workflow_id"),
        unique=True,
        **only("parent_run_id IS NOT NULL AND parent_task_run_id IS NULL"),
    ),
    **HOT,
)

lanes = Table(
    "lanes",
    metadata,
    Column("id", Serial, primary_key=True, autoincrement=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("namespace", String(200), nullable=False),
    Column("queue", String(200), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("labels", Json, nullable=False),
    Column("pool", String(200)),
    # Set when the workflow limits its active tasks.
    Column("workflow_id", Id, cascade("workflows.id")),
    # Slots of the pool that each task run in this lane takes.
    Column("pool_slots", Integer, nullable=False),
    Index("ix_lanes_pool", "namespace", "pool", **only("pool IS NOT NULL")),
    Index("ix_lanes_workflow_id", "workflow_id", **only("workflow_id IS NOT NULL")),
)

# Not only the state: whoever looks for keys that were left must not be led through all that are held.
_KEY_IS_HELD = "key_state = 'held' AND concurrency_key IS NOT NULL"
task_runs = Table(
    "task_runs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("run_id", Id, cascade("workflow_runs.id"), nullable=False),
    Column("namespace", String(200), nullable=False),
    Column("workflow_id", Id, nullable=False),
    Column("task_id", Id, nullable=False),
    # -1 stands for the task itself; the items of a mapped one count from 0.
    Column("map_index", Integer, nullable=False, server_default="-1"),
    Column("item", Json),
    Column("logical_date", Instant, nullable=False),
    Column("status", String(20), nullable=False),
    Column("trigger_rule", String(40), nullable=False),
    Column("upstream_waiting", Integer, nullable=False, server_default="0"),
    Column("upstream_succeeded", Integer, nullable=False, server_default="0"),
    Column("upstream_failed", Integer, nullable=False, server_default="0"),
    Column("upstream_skipped", Integer, nullable=False, server_default="0"),
    Column("downstream_count", Integer, nullable=False),
    Column("is_teardown", Boolean, nullable=False),
    # When it becomes ready the engine looks at it, before a worker may have it.
    Column("is_gated", Boolean, nullable=False),
    # Its output names who goes on.
    Column("is_branch", Boolean, nullable=False),
    # NO_LANE while it waits for its key.
    Column("lane_id", BigInteger, nullable=False),
    # Of all with the same key one runs at a time: the one that holds it.
    Column("concurrency_key", String(200)),
    Column("key_state", String(20)),
    # Smaller goes first: when it became ready, minus a head start for its priority.
    Column("claim_rank", BigInteger),
    Column("priority", Integer, nullable=False),
    Column("is_limited", Boolean, nullable=False),
    # One more for every claim; with the incarnation it fences every write of a worker.
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("retry_count", Integer, nullable=False),
    Column("failure_count", Integer, nullable=False, server_default="0"),
    Column("max_deliveries", Integer, nullable=False),
    Column("lost_count", Integer, nullable=False, server_default="0"),
    Column("timeout_seconds", Float),
    Column("due_at", Instant),
    Column("queued_at", Instant),
    Column("started_at", Instant),
    Column("finished_at", Instant),
    Column("worker_id", Id),
    Column("incarnation", String(36)),
    Column("lease_expires_at", Instant),
    # Set while it runs without a worker: what the engine holds it for, and what exactly that is, for people.
    Column("holder", String(20)),
    Column("waiting_for", Json),
    # Its attempt has started a run that ends with it: until that run has ended.
    Column("is_calling", Boolean, nullable=False, server_default=false()),
    Column("cancel_requested_at", Instant),
    Column("exit_code", Integer),
    Column("error_type", String(40)),
    Column("error", Text),
    Column("output", Json),
    Column("usage", Json),
    Column("is_unconfirmed", Boolean, nullable=False, server_default=false()),
    Column("created_at", Instant, nullable=False),
    UniqueConstraint("run_id", "task_id", "map_index"),
    one_of("status", TaskState),
    final_means_finished(TASK_FINAL),
    one_of("holder", Holder),
    one_of("key_state", KeyState),
    CheckConstraint("(status = 'running') = (lease_expires_at IS NOT NULL OR holder IS NOT NULL)", name="leased"),
    CheckConstraint("lease_expires_at IS NULL OR holder IS NULL", name="held"),
    CheckConstraint("status <> 'retrying' OR due_at IS NOT NULL", name="due"),
    CheckConstraint("status <> 'queued' OR claim_rank IS NOT NULL", name="ranked"),
    CheckConstraint("upstream_waiting >= 0", name="waiting"),
    Index("ix_task_runs_claim", "lane_id", "claim_rank", "id", **only("status = 'queued'")),
    Index("ix_task_runs_due", "due_at", **only("status = 'retrying'")),
    Index("ix_task_runs_expiry", "due_at", **only("status = 'queued' AND due_at IS NOT NULL")),
    Index("uq_task_runs_key", "namespace", "concurrency_key", unique=True, **only(_KEY_IS_HELD)),
    Index("ix_task_runs_key_new", "claim_rank", "id", **only("status = 'queued' AND key_state = 'new'")),
    Index(
        "ix_task_runs_key_waiting",
        *("namespace", "concurrency_key", "claim_rank", "id"),
        **only("status = 'queued' AND lane_id = 0"),
    ),
    Index("ix_task_runs_key_left", "id", **only("key_state = 'held' AND status <> 'queued' AND status <> 'running'")),
    Index("ix_task_runs_lease", "lease_expires_at", **only("status = 'running' AND holder IS NULL")),
    Index("ix_task_runs_held", "due_at", **only("holder <> 'poll' AND due_at IS NOT NULL")),
    Index("ix_task_runs_polls", "due_at", **only("holder = 'poll' AND due_at IS NOT NULL")),
    Index("ix_task_runs_approvals", "namespace", "id", **only("holder = 'approval'")),
    Index("ix_task_runs_slots", "lane_id", **only("status = 'running' AND is_limited AND holder IS NULL")),
    Index("ix_task_runs_items", "run_id", "task_id", "map_index", **only("status = 'pending' AND map_index >= 0")),
    Index("ix_task_runs_dead", "namespace", "id", **only("status = 'failed'")),
    Index("ix_task_runs_calls", "id", **only("is_calling AND (holder IS NULL OR cancel_requested_at IS NOT NULL)")),
    **HOT,
)

# Attempts that others came after: the latest one stands in its task run.
attempts = Table(
    "attempts",
    metadata,
    Column("task_run_id", Id, cascade("task_runs.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("run_id", Id, nullable=False),
    Column("status", String(20), nullable=False),
    Column("worker_id", Id),
    Column("incarnation", String(36)),
    Column("started_at", Instant),
    Column("finished_at", Instant, nullable=False),
    Column("exit_code", Integer),
    Column("error_type", String(40)),
    Column("error", Text),
    Column("usage", Json),
    Column("is_unconfirmed", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("task_run_id", "attempt"),
)

task_logs = Table(
    "task_logs",
    metadata,
    Column("task_run_id", Id, cascade("task_runs.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    # Where these bytes stand in everything the attempt wrote; a jump is a gap.
    Column("offset", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False),
    PrimaryKeyConstraint("task_run_id", "attempt", "offset"),
)

state_history = Table(
    "state_history",
    metadata,
    Column("seq", Serial, primary_key=True, autoincrement=True),
    Column("entity_type", String(20), nullable=False),
    Column("entity_id", Id, nullable=False),
    # The run that the change belongs to, or else the entity itself: one index serves both questions.
    Column("root_id", Id, nullable=False),
    Column("namespace", String(200), nullable=False),
    Column("old_state", String(20)),
    Column("new_state", String(20), nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column("metadata", Json),
    Index("ix_state_history_root_id_seq", "root_id", "seq"),
    sqlite_autoincrement=True,
)
