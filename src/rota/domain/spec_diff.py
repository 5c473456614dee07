"""What differs between two versions of a definition, in the words of the definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TASKS = "tasks"
# Whether a workflow is paused is no part of a version.
_LEFT_OUT = (_TASKS, "is_active")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field with its value before and after; None where it has its default."""

    field: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A task that is in both versions, and what differs."""

    task: str
    fields: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class SpecDiff:
    """What one must do to the older definition to get the newer one."""

    fields: tuple[FieldChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[TaskChange, ...]
    # The same tasks in another order.
    is_reordered: bool


def compare_definitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> SpecDiff:
    """The differences between two definitions as `workflow_to_dict` writes them."""
    before = {task["name"]: task for task in old.get(_TASKS, ())}
    after = {task["name"]: task for task in new.get(_TASKS, ())}
    compared = [TaskChange(name, _compare(before[name], task)) for name, task in after.items() if name in before]
    return SpecDiff(
        fields=_compare(_pick_fields(old), _pick_fields(new)),
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(change for change in compared if change.fields),
        is_reordered=[name for name in before if name in after] != [name for name in after if name in before],
    )


def _pick_fields(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in definition.items() if name not in _LEFT_OUT}


def _compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    names = list(dict.fromkeys((*old, *new)))
    return tuple(FieldChange(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))
