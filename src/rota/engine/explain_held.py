"""What the engine holds a task run for, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.domain.states import Holder


def describe_held(holder: str, waiting_for: Mapping[str, Any] | None) -> tuple[str, str]:
    """A stable code and a sentence for a task run that runs without a worker."""
    if waiting_for is None:
        return "held", f"no worker is needed: it waits for its {holder}"
    if holder == Holder.APPROVAL:
        return "waiting_for_approval", _describe_approval(waiting_for)
    return "waiting", _describe_wait(waiting_for)


def _describe_approval(asked: Mapping[str, Any]) -> str:
    who = " or ".join(asked["approvers"]) or "anybody who may operate runs"
    question = f": {asked['message']}" if asked["message"] else ""
    return f"{who} has to approve or reject it{question}"


def _describe_wait(asked: Mapping[str, Any]) -> str:
    if "seconds" in asked:
        return f"it waits for {asked['seconds']:g} seconds"
    if "url" in asked:
        last = f": {asked['polls']} times so far, the last answer was {asked['last']}" if asked["polls"] else ""
        return f"it asks {asked['method']} {asked['url']} until the answer is as expected{last}"
    if "workflow" in asked:
        task = f"task {asked['task']} of " if "task" in asked else ""
        last = f" (now {asked['last']})" if "last" in asked else ""
        return (
            f"it waits for {task}a run of {asked['workflow']} for {asked['logical_date']} to end as "
            f"{asked['status']}{last}"
        )
    return f"it waits until {asked['until']}"
