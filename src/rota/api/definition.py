"""Definitions on their way in and out: read by the domain, within the caller's namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from rota.api.access import require_namespace
from rota.api.context import Api
from rota.domain.errors import Conflict
from rota.domain.schedule import SCHEDULE_FIELDS
from rota.domain.spec import WorkflowSpec
from rota.domain.spec_parse import parse_workflow
from rota.domain.spec_write import workflow_to_dict
from rota.engine.define import Defined
from rota.store import schedules
from rota.store.database import Transaction
from rota.store.definitions import WorkflowRow
from rota.store.reads import workflows

# When these change, the list of schedules is not what was asked to stay.
_RULE_FIELDS = SCHEDULE_FIELDS - {"pause_after_failures"}


def parse(data: Mapping[str, Any], namespace: str, *, now: datetime | None) -> WorkflowSpec:
    """A workflow as sent; one without tasks is accepted, and one without a namespace is the caller's."""
    spec = parse_workflow(data, now=now, allow_empty=True)
    if data.get("namespace") is None:
        return replace(spec, namespace=namespace)
    require_namespace(spec.namespace)
    return spec


async def read_current(api: Api, found: WorkflowRow) -> dict[str, Any]:
    """The definition as it stands now, which PUT would accept."""

    async def read(transaction: Transaction) -> dict[str, Any]:
        version = await workflows.read_version(transaction, found.id, found.current_version)
        if version is not None:
            # Whether it is paused is no part of a version.
            document = {name: value for name, value in version.spec.items() if name != "is_active"}
            return document if found.is_active else {**document, "is_active": False}
        rules = await schedules.read_schedules(transaction, found.id)
        return _write_bare(found, [rule.spec for rule in rules])

    return await api.database.read(read)


def _write_bare(found: WorkflowRow, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """A workflow without tasks has no version: what it is stands in its own row."""
    data = {
        "name": found.name,
        "namespace": found.namespace,
        "description": found.description,
        "tags": found.tags,
        "is_active": found.is_active,
        "max_active_runs": found.max_active_runs or 0,
        "max_active_tasks": found.max_active_tasks or 0,
        "schedules": rules,
    }
    return workflow_to_dict(parse_workflow(data, now=None, allow_empty=True))


async def remove_schedule(api: Api, found: WorkflowRow, schedule_id: str) -> None:
    """Saves the definition without one of its schedules; refused if somebody else changes it meanwhile."""
    if found.kind == "job":
        raise Conflict(f"it is the schedule of a job: pause it, or delete the job (DELETE /jobs/{found.id})")
    rows = await api.database.read(lambda tx: schedules.read_schedules(tx, found.id))
    rules = [row.spec for row in rows if row.id != schedule_id]
    if len(rules) < len(rows):
        await change(api, found, {"schedules": rules})


async def change(
    api: Api, found: WorkflowRow, fields: Mapping[str, Any], *, expected_version: int | None = None
) -> None:
    """Saves the definition with some fields replaced; refused if somebody else changes it meanwhile."""
    current = await read_current(api, found)
    if _RULE_FIELDS.intersection(fields):
        current.pop("schedules", None)
    elif "schedules" in fields:
        current = {name: value for name, value in current.items() if name not in _RULE_FIELDS}
    spec = parse({**current, **fields}, found.namespace, now=await api.read_time())
    expected = found.version if expected_version is None else expected_version
    await api.engine.apply_workflow(spec, expected_version=expected)


async def restore(
    api: Api, found: WorkflowRow, document: Mapping[str, Any], *, expected_version: int | None = None
) -> Defined:
    """Saves an older definition once more; whether the workflow is paused is no part of it."""
    if found.kind != "workflow":
        raise Conflict(f"{found.id} is a job: its definition never changes")
    spec = replace(parse_workflow(document, now=None), is_active=found.is_active)
    expected = found.version if expected_version is None else expected_version
    return await api.engine.apply_workflow(spec, expected_version=expected)
