"""What differs between two definitions, field by field."""

from __future__ import annotations

from typing import Any

from rota.domain.spec_diff import FieldChange, TaskChange, compare_definitions


def _task(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": "true", **fields}


def test_the_same_is_no_difference():
    definition = {"name": "x", "tags": ["a"], "tasks": [_task("a"), _task("b", depends_on=["a"])]}
    diff = compare_definitions(definition, dict(definition))
    assert (diff.fields, diff.added, diff.removed, diff.changed, diff.is_reordered) == ((), (), (), (), False)


def test_every_kind_of_difference():
    old = {"name": "x", "description": "old", "tasks": [_task("a"), _task("b"), _task("gone")]}
    new = {
        "name": "x",
        "tags": ["t"],
        "tasks": [_task("b", command="false", retry_count=2), _task("a"), _task("fresh")],
    }
    diff = compare_definitions(old, new)
    assert diff.fields == (FieldChange("description", "old", None), FieldChange("tags", None, ["t"]))
    assert (diff.added, diff.removed, diff.is_reordered) == (("fresh",), ("gone",), True)
    assert diff.changed == (
        TaskChange("b", (FieldChange("command", "true", "false"), FieldChange("retry_count", None, 2))),
    )


def test_from_nothing_everything_is_new():
    diff = compare_definitions({}, {"name": "x", "tasks": [_task("a")]})
    assert (diff.fields, diff.added, diff.removed) == ((FieldChange("name", None, "x"),), ("a",), ())
