"""Reading many jobs at once: those that differ in nothing but name and command are read once for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.ids import is_uuid
from rota.domain.job import parse_job
from rota.domain.spec import WorkflowSpec
from rota.domain.spec_read import show

MOST_JOBS = 1_000
# More faults than these help nobody.
MOST_FAULTS = 100
# Names and commands that are valid beyond doubt; all others are looked at closely.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PLAIN_COMMAND = re.compile(r"[!-z|}~][ -z|}~]{0,9999}")


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Jobs that were read; a fault names the job by its place: `jobs[3].command`."""

    specs: Sequence[WorkflowSpec]
    errors: Sequence[FieldError]


def parse_jobs(items: Iterable[object], *, now: datetime | None) -> JobBatch:
    """Reads each of these jobs as `parse_job` does."""
    known: dict[str, WorkflowSpec] = {}
    specs: list[WorkflowSpec] = []
    errors: list[FieldError] = []
    for index, item in enumerate(items):
        try:
            specs.append(_read(item, known, now))
        except InvalidInput as error:
            if not error.errors:
                errors.append(FieldError(f"jobs[{index}]", error.detail))
            errors += [FieldError(f"jobs[{index}].{fault.field}", fault.reason) for fault in error.errors]
            if len(errors) >= MOST_FAULTS:
                break
    return JobBatch(specs, errors)


def _read(item: object, known: dict[str, WorkflowSpec], now: datetime | None) -> WorkflowSpec:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"a job is an object, not {show(item)}")
    name, command = item.get("name"), item.get("command")
    if not isinstance(name, str) or not _is_plain(name, command):
        return parse_job(item, now=now)
    shape = repr({key: value for key, value in item.items() if key not in ("name", "command")})
    like = known.get(shape)
    if like is None:
        like = parse_job(item, now=now)
        # Of a container the command is a part; only what has no other action can be copied.
        if like.tasks[0].action == {"command": command}:
            known[shape] = like
        return like
    return replace(like, name=name, tasks=(replace(like.tasks[0], action={"command": command}),))


def _is_plain(name: str, command: Any) -> bool:
    return (
        isinstance(command, str)
        and _PLAIN_NAME.fullmatch(name) is not None
        and _PLAIN_COMMAND.fullmatch(command) is not None
        and not is_uuid(name)
    )
