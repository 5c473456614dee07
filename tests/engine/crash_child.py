"""Does one verb and dies in the middle of it: forks a process for each line it is given.

A line is JSON: the database, the time, the verb with its arguments, and after how many statements SIGKILL comes.
The answer is one line: `killed`, or `done` when the verb came to its end before that.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Engine as SqlEngine
from sqlalchemy import event

from rota.domain.work import AttemptKey, Finished, LogChunk, Registration, WorkerIdentity
from rota.engine.engine import Engine
from rota.engine.submit import RunRequest
from rota.store.definitions import find_workflow
from tests.engine.stage import open_node, task, workflow

Arguments = dict[str, Any]
FLOW = workflow(
    task("a", retry_count=1, retry_delay_seconds=5),
    task("b", "a"),
    task("c", "a", pool="small"),
    task("d", "b", "c", trigger_rule="one_success"),
    task("clean", "d", teardown=True),
    max_active_runs=1,
    run_timeout_seconds=100,
    schedule_cron="* * * * *",
)
# What others call, what calls them, and what hears of their end.
KIN = [
    workflow(task("work", output="json"), name="called"),
    workflow(task("call", workflow="called"), task("after", "call"), name="calling"),
    workflow(task("hear"), name="hearing", on=[{"workflow": "called", "status": "done"}, {"workflow": "calling"}]),
]
CHANGED = workflow(task("x"), task("y", "x", queue="other"), max_active_runs=2, interval_seconds=30)


def _worker(arguments: Arguments) -> WorkerIdentity:
    return WorkerIdentity(*arguments["worker"])


async def _report(engine: Engine, arguments: Arguments) -> None:
    ends: list[Any] = []
    for task_run_id, attempt in arguments["held"]:
        ends.append(LogChunk(task_run_id, attempt, 0, b"bytes"))
        ends.append(Finished(task_run_id, attempt, arguments["status"], error_type="exit_code"))
    await engine.report(_worker(arguments), ends, claim=arguments["claim"])


async def _renew(engine: Engine, arguments: Arguments) -> None:
    await engine.renew(_worker(arguments), [AttemptKey(*key) for key in arguments["held"]])


async def _pause(engine: Engine, arguments: Arguments) -> None:
    row = await engine.database.read(lambda tx: find_workflow(tx, "default", name="flow"))
    assert row is not None
    await engine.set_active(row, is_active=False)


VERBS: dict[str, Callable[[Engine, Arguments], Awaitable[Any]]] = {
    "create": lambda engine, _a: engine.create_workflow(workflow(task("a"), task("b", "a"), name="new")),
    "apply": lambda engine, _a: engine.apply_workflow(CHANGED),
    "pause": _pause,
    "delete": lambda engine, a: engine.delete_workflow(a["workflow"]),
    "submit": lambda engine, a: engine.submit(RunRequest(a["workflow"])),
    "claim": lambda engine, a: engine.claim(_worker(a), limit=5),
    "report": _report,
    "renew": _renew,
    "register": lambda engine, _a: engine.register(Registration(name="new")),
    "leave": lambda engine, a: engine.leave(_worker(a)),
    "doubt": lambda engine, a: engine.doubt(_worker(a)),
    "drain": lambda engine, a: engine.drain_worker(a["worker"][0]),
    "cancel_run": lambda engine, a: engine.cancel_run(a["run"]),
    "cancel_task_run": lambda engine, a: engine.cancel_task_run(a["task_run"]),
    "retry_run": lambda engine, a: engine.retry_run(a["run"]),
    "fire": lambda engine, _a: engine.fire(),
    "release_due": lambda engine, _a: engine.release_due(),
    "reap_attempts": lambda engine, _a: engine.reap_attempts(),
    "reap_workers": lambda engine, _a: engine.reap_workers(),
    "reap_runs": lambda engine, _a: engine.reap_runs(),
    "follow": lambda engine, _a: engine.follow(),
    "prune": lambda engine, _a: engine.prune(0.0),
}


async def _play(case: dict[str, Any]) -> None:
    now = datetime.fromisoformat(case["now"])
    left = case["kill_after"]

    def count(*_arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async with open_node(case["url"], lambda: now) as node:
        event.listen(SqlEngine, "after_cursor_execute", count)
        await VERBS[case["verb"]](node.engine, case["arguments"])


def _fork(case: dict[str, Any]) -> str:
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_play(case))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must never return into its parent's loop
            traceback.print_exc()
            os._exit(1)
    _pid, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return "done" if status == 0 else "failed"


def main() -> None:
    for line in sys.stdin:
        sys.stdout.write(_fork(json.loads(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
