"""Writing a workflow back as a definition: canonical, without defaults, and equal when read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rota.domain.schedule import schedule_to_dict
from rota.domain.spec import WorkflowSpec, choose_max_active_runs
from rota.domain.spec_task import task_to_dict, write_value


def workflow_to_dict(spec: WorkflowSpec) -> dict[str, Any]:
    """The definition as JSON: `parse_workflow` makes an equal workflow of it."""
    written: dict[str, Any] = {"name": spec.name}
    if spec.kind != "workflow":
        written["kind"] = spec.kind
    for name in ("namespace", "description", "tags", "params", "is_active", "max_active_tasks"):
        if getattr(spec, name) != getattr(_DEFAULT, name):
            written[name] = write_value(getattr(spec, name))
    if spec.max_active_runs != choose_max_active_runs(spec.kind):
        # 0 says "no limit": null would mean the default.
        written["max_active_runs"] = spec.max_active_runs or 0
    for name in ("run_timeout_seconds", "pause_after_failures", "alerts"):
        if getattr(spec, name) != getattr(_DEFAULT, name):
            written[name] = write_value(getattr(spec, name))
    if spec.on:
        written["on"] = [{"workflow": trigger.workflow, "status": trigger.status} for trigger in spec.on]
    if spec.schedules:
        written["schedules"] = [schedule_to_dict(schedule) for schedule in spec.schedules]
    written["tasks"] = [task_to_dict(task) for task in spec.tasks]
    return written


_DEFAULT = WorkflowSpec(name="")


def content_hash(spec: WorkflowSpec) -> str:
    """SHA-256 of the canonical definition."""
    return hash_definition(workflow_to_dict(spec))


def hash_definition(document: Mapping[str, Any]) -> str:
    """SHA-256 of what `workflow_to_dict` wrote. Pausing makes no new version, so `is_active` is not part of it."""
    written = {name: value for name, value in document.items() if name != "is_active"}
    text = json.dumps(written, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
