"""The page about definitions names every field, and its example is one that is accepted."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.domain.job import JOB_FIELDS
from rota.domain.spec_action import (
    APPROVAL_FIELDS,
    CONTAINER_FIELDS,
    HTTP_FIELDS,
    WAIT_FIELDS,
    WAIT_HTTP_FIELDS,
    WAIT_RUN_FIELDS,
)
from rota.domain.spec_params import PARAM_FIELDS
from rota.domain.spec_parse import ALERT_EVENTS, ALERT_FIELDS, WORKFLOW_FIELDS, parse_workflow
from rota.domain.spec_task import LIMITS, TASK_FIELDS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "definition.md"
# Which part of the page must name which words.
PARTS = {
    "Workflow": WORKFLOW_FIELDS,
    "Parameters": PARAM_FIELDS,
    "Alerts": (*ALERT_FIELDS, *ALERT_EVENTS),
    "Task": (*TASK_FIELDS, *LIMITS),
    "HTTP": HTTP_FIELDS,
    "Container": CONTAINER_FIELDS,
    "Wait": (*WAIT_FIELDS, *WAIT_HTTP_FIELDS, *WAIT_RUN_FIELDS),
    "Approval": APPROVAL_FIELDS,
    "Job": JOB_FIELDS - WORKFLOW_FIELDS - TASK_FIELDS,
}


def read_part(title):
    """The text below a heading, its sub-headings included."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^(##+) {title}$", text, re.MULTILINE)
    assert found is not None
    rest = text[found.end() :]
    end = re.search(rf"^##{{0,{len(found[1]) - 2}}}#? ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


@pytest.mark.parametrize("title", PARTS)
def test_every_field_is_documented_where_it_belongs(title):
    part = read_part(title)
    missing = sorted(name for name in PARTS[title] if not re.search(rf"[`\"]{name}[`\"]", part))
    assert not missing


def test_the_example_is_accepted():
    example = re.search(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    spec = parse_workflow(json.loads(example[1]), now=datetime(2030, 1, 1, tzinfo=UTC))
    assert [task.name for task in spec.tasks] == ["extract", "report", "clean"]
