"""What a task does: one reader per kind, each answering the action in the words of the definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.domain.spec import ACTION_FIELDS, TaskKind
from rota.domain.spec_names import (
    LONGEST_URL,
    check_header_name,
    check_header_value,
    check_instant,
    check_method,
    check_printable,
    check_python_reference,
    check_status_class,
    check_task_name,
    check_url,
    check_workflow_name,
)
from rota.domain.spec_read import ONE_YEAR_SECONDS, Reader, show

# A Linux kernel refuses a longer single argument (MAX_ARG_STRLEN is 131,072 bytes, the closing NUL included).
LONGEST_ARGUMENT = 131_071
LONGEST_TEXT = 1_000_000
MOST_ARGUMENTS = 1_000
# Fields of a task that belong to one kind only.
KIND_FIELDS: Mapping[str, TaskKind] = {
    "stdin": "shell",
    "args": "python",
    "isolation": "python",
    "params": "workflow",
    "wait_for_result": "workflow",
}
HTTP_FIELDS = ("url", "method", "headers", "payload", "body", "secret", "expect", "follow_redirects")
CONTAINER_FIELDS = (
    "image",
    "command",
    "entrypoint",
    "mounts",
    "network",
    "pull",
    "user",
    "cpus",
)
WAIT_FIELDS = ("seconds", "until", "http", "run")
WAIT_HTTP_FIELDS = ("url", "method", "headers", "expect", "interval_seconds", "max_interval_seconds")
WAIT_RUN_FIELDS = ("workflow", "logical_date", "task", "status")
# How often a wait asks, unless it says so itself.
POLL_SECONDS = 30.0
LONGEST_POLL_SECONDS = 86_400.0
APPROVAL_FIELDS = ("message", "approvers", "deadline_seconds", "on_deadline")


def read_action(task: Reader) -> tuple[TaskKind, dict[str, Any]] | None:
    """The task's kind and action; None when it has none, or more than one."""
    given = [name for name in ACTION_FIELDS if task.has(name)]
    if not given:
        task.faults.add(task.path or "task", f"needs one of {', '.join(ACTION_FIELDS)}")
        return None
    for extra in given[1:]:
        task.report(extra, f"a task does one thing: give either {given[0]} or {extra}")
    if len(given) > 1:
        return None
    kind = ACTION_FIELDS[given[0]]
    for name, owner in KIND_FIELDS.items():
        if owner != kind and task.has(name):
            task.report(name, f"is for {owner} tasks only, and this is a {kind} task")
    return kind, _READERS[kind](task)


def read_command(reader: Reader, name: str) -> str | list[str] | None:
    """A string for the shell, or a list of arguments."""
    if isinstance(reader.data.get(name), list | tuple):
        found = list(reader.texts(name, most=MOST_ARGUMENTS, longest=LONGEST_ARGUMENT, is_empty_allowed=True))
        if found and found[0]:
            return found
        reader.report(name, "the first item must name the program")
        return None
    text = reader.text(name, longest=LONGEST_ARGUMENT)
    if text is not None and not text.strip():
        reader.report(name, "must not be blank")
    return text


def _drop_absent(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value not in ({}, [])}


def _read_shell(task: Reader) -> dict[str, Any]:
    stdin = task.text("stdin", longest=LONGEST_TEXT, is_empty_allowed=True)
    return _drop_absent({"command": read_command(task, "command"), "stdin": stdin or None})


def _read_python(task: Reader) -> dict[str, Any]:
    args = task.mapping("args")
    for name in args:
        if not name.isidentifier():
            task.report("args", f"expected names of parameters, not {show(name)}")
    reference = task.text("python", check=check_python_reference)
    return _drop_absent({"python": reference, "args": dict(args)})


def _read_http(task: Reader) -> dict[str, Any]:
    http = task.child("http")
    http.refuse_unknown(HTTP_FIELDS)
    if http.has("payload") and http.has("body"):
        http.report("body", "give either payload (JSON) or body (text)")
    has_content = http.has("payload") or http.has("body")
    action = _read_request(http)
    action["method"] = action.get("method") or ("POST" if has_content else "GET")
    if has_content and action["method"] in ("GET", "HEAD"):
        http.report("method", f"a {action['method']} request carries no payload; send POST, PUT or PATCH")
    action |= _drop_absent(
        {
            "body": http.text("body", longest=LONGEST_TEXT, is_empty_allowed=True),
            "secret": http.text("secret", check=check_printable),
            "follow_redirects": http.boolean("follow_redirects", default=False) or None,
        }
    )
    # An empty payload ({}, [] or 0) is a payload.
    if http.has("payload"):
        action["payload"] = http.data["payload"]
    return {"http": action}


def _read_request(http: Reader) -> dict[str, Any]:
    if not http.has("url"):
        http.report("url", "is required")
    method = http.text("method", check=check_method)
    headers = http.text_map("headers", key_check=check_header_name, longest=8_192, most=100)
    for name, value in headers.items():
        reason = check_header_value(value)
        if reason is not None:
            http.report(f"headers.{name}", reason)
    return _drop_absent(
        {
            "url": http.text("url", longest=LONGEST_URL, check=check_url),
            "method": method.upper() if method else None,
            "headers": headers,
            "expect": _read_statuses(http),
        }
    )


def _read_statuses(http: Reader) -> list[int | str]:
    found: list[int | str] = []
    for index, value in enumerate(http.items("expect", most=100)):
        is_class = isinstance(value, str) and check_status_class(value) is None
        if is_class or (type(value) is int and 100 <= value <= 599):
            found.append(value)
        else:
            wanted = f'expected a status (200) or a class of statuses ("2xx"), not {show(value)}'
            http.report(f"expect[{index}]", wanted)
    return found


def _read_container(task: Reader) -> dict[str, Any]:
    container = task.child("container")
    container.refuse_unknown(CONTAINER_FIELDS)
    if not container.has("image"):
        container.report("image", "is required")
    pull = container.choice("pull", "missing", ("missing", "always", "never"))
    return {
        "container": _drop_absent(
            {
                "image": container.text("image", check=check_printable),
                "command": read_command(container, "command") if container.has("command") else None,
                "entrypoint": read_command(container, "entrypoint") if container.has("entrypoint") else None,
                "mounts": list(container.texts("mounts", most=100, longest=4_096, check=check_printable)),
                "network": container.text("network", check=check_printable),
                "pull": None if pull == "missing" else pull,
                "user": container.text("user", check=check_printable),
                "cpus": container.number("cpus", 0.0, least=0.01, most=10_000.0) or None,
            }
        )
    }


def _read_workflow(task: Reader) -> dict[str, Any]:
    name = task.text("workflow", check=check_workflow_name)
    is_waiting = task.boolean("wait_for_result", default=True)
    action = {
        "workflow": name,
        "params": dict(task.mapping("params")),
        "wait_for_result": None if is_waiting else False,
    }
    return _drop_absent(action)


def _read_wait(task: Reader) -> dict[str, Any]:
    wait = task.child("wait")
    wait.refuse_unknown(WAIT_FIELDS)
    if sum(wait.has(name) for name in WAIT_FIELDS) != 1:
        task.report("wait", f"needs exactly one of {', '.join(WAIT_FIELDS)}")
        return {}
    if wait.has("seconds"):
        return {"wait": {"seconds": wait.number("seconds", 0.0, least=0.0, most=ONE_YEAR_SECONDS)}}
    if wait.has("until"):
        return {"wait": {"until": wait.text("until", check=check_instant)}}
    if wait.has("http"):
        return {"wait": {"http": _read_wait_http(wait.child("http"))}}
    return {"wait": {"run": _read_wait_run(wait.child("run"))}}


def _read_wait_http(http: Reader) -> dict[str, Any]:
    http.refuse_unknown(WAIT_HTTP_FIELDS)
    action = _read_request(http)
    interval_seconds = http.number("interval_seconds", POLL_SECONDS, least=1.0, most=LONGEST_POLL_SECONDS)
    if http.has("interval_seconds"):
        action["interval_seconds"] = interval_seconds
    if http.has("max_interval_seconds"):
        action["max_interval_seconds"] = http.number(
            "max_interval_seconds", interval_seconds, least=interval_seconds, most=LONGEST_POLL_SECONDS
        )
    return action


def _read_wait_run(run: Reader) -> dict[str, Any]:
    run.refuse_unknown(WAIT_RUN_FIELDS)
    if not run.has("workflow"):
        run.report("workflow", "is required")
    status = run.choice("status", "success", ("success", "failed", "cancelled", "done"))
    return _drop_absent(
        {
            "workflow": run.text("workflow", check=check_workflow_name),
            "logical_date": run.text("logical_date", check=check_instant),
            "task": run.text("task", check=check_task_name),
            "status": None if status == "success" else status,
        }
    )


def _read_approval(task: Reader) -> dict[str, Any]:
    approval = task.child("approval")
    approval.refuse_unknown(APPROVAL_FIELDS)
    on_deadline = approval.choice("on_deadline", "fail", ("fail", "approve", "skip"))
    if approval.has("on_deadline") and not approval.has("deadline_seconds"):
        approval.report("on_deadline", "needs deadline_seconds")
    return {
        "approval": _drop_absent(
            {
                "message": approval.text("message", longest=10_000),
                "approvers": list(approval.texts("approvers", most=100, check=check_printable)),
                "deadline_seconds": approval.duration("deadline_seconds"),
                "on_deadline": None if on_deadline == "fail" else on_deadline,
            }
        )
    }


_READERS: Mapping[TaskKind, Callable[[Reader], dict[str, Any]]] = {
    "shell": _read_shell,
    "http": _read_http,
    "python": _read_python,
    "container": _read_container,
    "workflow": _read_workflow,
    "wait": _read_wait,
    "approval": _read_approval,
}
