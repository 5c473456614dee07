"""Answers that a shell can `eval`: variables, quoted, for workers that have no JSON reader."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from rota.domain.work import Assignment, Registered

SHELL = "text/x-shellscript"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def write_registered(registered: Registered) -> str:
    return _write(
        {
            "ROTA_WORKER_ID": registered.worker_id,
            "ROTA_INCARNATION": registered.incarnation,
            "ROTA_HEARTBEAT_INTERVAL_SECONDS": f"{registered.heartbeat_interval_seconds:g}",
            "ROTA_LEASE_SECONDS": f"{registered.lease_seconds:g}",
        }
    )


def write_assignment(assignment: Assignment) -> str:
    """`ROTA_SCRIPT` is all that there is to execute, environment and working directory included."""
    return _write(
        {
            "ROTA_TASK_RUN_ID": assignment.task_run_id,
            "ROTA_RUN_ID": assignment.run_id,
            "ROTA_WORKFLOW": assignment.workflow,
            "ROTA_TASK": assignment.task,
            "ROTA_ATTEMPT": str(assignment.attempt),
            "ROTA_IDEMPOTENCY_KEY": assignment.idempotency_key,
            "ROTA_LOGICAL_DATE": assignment.logical_date,
            "TRACEPARENT": assignment.traceparent,
            "ROTA_TIMEOUT_SECONDS": f"{assignment.timeout_seconds or 0:g}",
            "ROTA_SCRIPT": _write_script(assignment.spec),
        }
    )


def _write(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def _write_script(spec: Mapping[str, Any]) -> str:
    command = spec.get("command", "")
    lines = [
        f"export {name}={shlex.quote(str(value))}"
        for name, value in (spec.get("env") or {}).items()
        if _VARIABLE.fullmatch(name)
    ]
    if spec.get("working_directory"):
        lines.append(f"cd -- {shlex.quote(spec['working_directory'])} || exit 126")
    lines.append(command if isinstance(command, str) else shlex.join(command))
    return "\n".join(lines)
