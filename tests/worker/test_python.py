"""Python tasks: warm children, their output and errors, and the ways in which they end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from rota.domain.work import AttemptKey, Finished
from rota.worker import proc
from tests.worker.driver import count_lines, make_assignment, wait_until

MODULE = """
import asyncio, ctypes, os, subprocess, sys, time, threading
from pathlib import Path

def nothing(): pass
def add(a, b=1): return a + b
def pid(): return os.getpid()
async def later(x):
    await asyncio.sleep(0)
    return x
def environment(*names): return [os.environ.get(name) for name in names]
def where(): return os.getcwd()
def fail(): raise ValueError("it broke")
def leave(code): sys.exit(code)
def crash(): os._exit(3)
def segfault(): os.kill(os.getpid(), 11)
def unjson(): return object()
def large(): return "x" * 1_100_000
def talk(word):
    print(word, "python")
    print(word, "error", file=sys.stderr)
    os.system(f"echo {word} shell")
    os.write(1, f"{word} raw\\n".encode())
def mute(): os.close(1); os.close(2)
def wait(path):
    while not Path(path).exists(): time.sleep(0.005)
    return os.getpid()
def hang(path, tidy=""):
    child = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(f"{os.getpid()}\\n{child.pid}\\n")
    try:
        time.sleep(600)
    finally:
        if tidy: Path(tidy).write_text("tidied")
async def hang_inline(path):
    Path(path).write_text("up")
    await asyncio.Event().wait()
def eat():
    data = []
    while True: data.append(os.urandom(1_000_000))
def spin():
    while True: pass
def grow(): global kept; kept = os.urandom(60_000_000)
def strange_error():
    class Strange(Exception):
        def __str__(self): raise RuntimeError("no")
    raise Strange()
not_callable = 5
def daemon(pids):
    subprocess.run(["/bin/sh", "-c", f"(setsid sh -c 'echo $$ >> {pids}; sleep 600' >/dev/null 2>&1 &)"], check=True)
    while not os.path.exists(pids): pass
    return os.getpid()
def command():
    return int(subprocess.run(["/bin/sh", "-c", "echo $PPID"], capture_output=True, check=True).stdout)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module of tasks, under a name of its own so that tests do not see each other's."""
    path = tmp_path / f"tasks_{os.path.basename(tmp_path)}.py".replace("-", "_")
    path.write_text(MODULE)
    return path


@pytest.fixture
def start(start_worker, module):
    async def start(**options: Any):
        return await start_worker(**({"python_path": (str(module.parent),)} | options))

    return start


def call(module: Path, number: int, function: str, args: Any = None, **fields: Any):
    reference = f"{module.stem}:{function}"
    return make_assignment(number, kind="python", python=reference, args=args or {}, **fields)


@pytest.fixture
def run(source, start, module):
    """Runs one call and answers its result."""

    async def run(function: str, args: Any = None, **fields: Any) -> Finished:
        await start(**fields.pop("options", {}))
        await source.offer(call(module, 1, function, args, **fields))
        return (await source.until_finished())[0]

    return run


@pytest.mark.parametrize("isolation", ["process", "inline"])
async def test_async_functions_return_their_value(run, isolation):
    finished = await run("later", {"x": {"a": [1, None, "ž"]}}, isolation=isolation)
    assert (finished.status, finished.output) == ("success", {"a": [1, None, "ž"]})


async def test_arguments_by_name_and_by_position(source, start, module):
    await start()
    await source.offer(call(module, 1, "add", {"a": 2}), call(module, 2, "add", [2, 3]))
    outputs = {one.task_run_id: one.output for one in await source.until_finished(2)}
    assert outputs == {"task-run-1": 3, "task-run-2": 5}


@pytest.mark.parametrize(
    ("function", "args", "error_type", "sentence"),
    [
        ("fail", None, "exception", "ValueError: it broke"),
        ("add", None, "exception", "TypeError: add() missing 1 required positional argument"),
        ("strange_error", None, "exception", "its message cannot be shown"),
        ("leave", [4], "exit_code", "exit code 4"),
        ("leave", ["a message"], "exit_code", "exit code 1"),
        ("crash", None, "exit_code", "the Python process ended in the middle of the task: exit code 3"),
        ("segfault", None, "signal", "ended by signal 11 (SIGSEGV)"),
        ("unjson", None, "bad_output", "cannot be written as JSON"),
        ("large", None, "bad_output", "1,048,576 are allowed"),
        ("missing", None, "bad_task", "has no 'missing'"),
        ("not_callable", None, "bad_task", "is not a function but int"),
    ],
)
async def test_failures_are_told_apart(run, function, args, error_type, sentence):
    finished = await run(function, args)
    assert (finished.status, finished.error_type) == ("failed", error_type)
    assert sentence in finished.error


@pytest.mark.parametrize("isolation", ["process", "inline"])
@pytest.mark.parametrize("reference", ["no_such_module:f", "json.no_such:f", "json", "json:", ":f"])
async def test_bad_references(source, start, reference, isolation):
    await start()
    await source.offer(make_assignment(1, kind="python", python=reference, isolation=isolation))
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.error_type) == ("failed", "bad_task")
    assert finished.error.startswith("python: ")


async def test_an_error_inside_a_module_is_the_tasks_own(source, start, module):
    module.write_text("import a_module_that_is_missing\n")
    await start()
    await source.offer(call(module, 1, "f"))
    finished = (await source.until_finished())[0]
    assert (finished.error_type, finished.error) == (
        "exception",
        "ModuleNotFoundError: No module named 'a_module_that_is_missing'",
    )


async def test_traceback_is_in_the_log_and_begins_with_the_task(run, source, module):
    await run("fail")
    log = source.log().decode()
    assert 'raise ValueError("it broke")' in log
    assert str(module) in log
    assert "python_child.py" not in log


async def test_exit_zero_is_success(run):
    finished = await run("leave", [0])
    assert (finished.status, finished.output) == ("success", None)


async def test_all_ways_of_writing_land_in_the_right_log(source, start, module):
    await start(python_processes=1, concurrency=8)
    await source.offer(*(call(module, number, "talk", [f"w{number}"]) for number in range(8)))
    await source.until_finished(8)
    for number in range(8):
        lines = set(source.log(number).decode().splitlines())
        assert lines == {f"w{number} {way}" for way in ("python", "error", "shell", "raw")}


async def test_short_calls_sent_ahead_keep_their_own_logs(source, start, module):
    await start(python_processes=1, concurrency=64)
    await source.offer(*(call(module, number, "nothing") for number in range(200)))
    await source.until_finished(200)
    module_calls = [call(module, number, "talk", [f"w{number}"]) for number in range(200, 264)]
    await source.offer(*module_calls)
    await source.until_finished(264)
    for number in range(200, 264):
        assert source.log(number).count(f"w{number} ".encode()) == 4
    assert all(one.status == "success" for one in source.finished)


async def test_a_task_that_closes_its_output_harms_nobody(source, start, module):
    await start(python_processes=1, concurrency=1)
    await source.offer(call(module, 1, "mute"), call(module, 2, "talk", ["w"]))
    finished = await source.until_finished(2)
    assert [one.status for one in finished] == ["success", "success"]
    assert b"w python" in source.log(2)


async def test_environment_is_the_tasks_own_and_does_not_stay(source, start, module, tmp_path):
    await start(python_processes=1, concurrency=1)
    names = ["ROTA_TASK_RUN_ID", "MINE"]
    await source.offer(
        call(module, 1, "environment", names, env={"MINE": "1"}),
        call(module, 2, "environment", names),
        call(module, 3, "where", working_directory=str(tmp_path)),
        call(module, 4, "where"),
    )
    first, second, third, fourth = [one.output for one in await source.until_finished(4)]
    assert (first, second) == (["task-run-1", "1"], ["task-run-2", None])
    assert (third, fourth) == (str(tmp_path), os.getcwd())


async def test_large_arguments_get_through(run):
    finished = await run("later", {"x": "y" * 900_000})
    assert len(finished.output) == 900_000


async def test_children_stay_warm(source, start, module):
    await start(python_processes=1, concurrency=1)
    await source.offer(*(call(module, number, "pid") for number in range(20)))
    assert len({one.output for one in await source.until_finished(20)}) == 1


async def test_children_are_replaced_after_their_number_of_tasks(source, start, module):
    await start(python_processes=1, concurrency=1, python_max_tasks=5)
    await source.offer(*(call(module, number, "pid") for number in range(20)))
    assert len({one.output for one in await source.until_finished(20)}) == 4


async def test_a_child_that_has_grown_is_replaced(source, start, module):
    await start(python_processes=1, concurrency=1, python_max_memory_bytes=50_000_000)
    await source.offer(call(module, 1, "grow"), call(module, 2, "pid"), call(module, 3, "pid"))
    finished = await source.until_finished(3)
    assert [one.status for one in finished] == ["success"] * 3


async def test_what_a_call_leaves_running_ends(source, start, module, tmp_path):
    pids = tmp_path / "pids"
    await start(python_processes=1, concurrency=1)
    await source.offer(call(module, 1, "daemon", [str(pids)]), call(module, 2, "pid"))
    first, second = await source.until_finished(2)
    assert (first.status, second.status) == ("success", "success")
    assert first.output != second.output
    (daemon,) = map(int, pids.read_text().split())
    await wait_until(lambda: (proc.read_stat(daemon) or "Z")[0] == "Z")


async def test_a_call_that_waits_for_its_processes_keeps_its_child(source, start, module):
    await start(python_processes=1, concurrency=1)
    await source.offer(*(call(module, number, "command") for number in range(5)))
    assert len({one.output for one in await source.until_finished(5)}) == 1


async def test_changed_code_is_used(source, start, module):
    await start(python_processes=1, concurrency=1)
    await source.offer(call(module, 1, "nothing"))
    assert (await source.until_finished())[0].output is None
    module.write_text("def nothing(): return 'new'\n")
    os.utime(module, (1, 1))
    number = 1
    async with asyncio.timeout(30):
        while source.finished[-1].output != "new":
            number += 1
            await source.offer(call(module, number, "nothing"))
            await source.until_finished(number)


async def test_a_long_call_does_not_hold_up_short_ones(source, start, module, tmp_path):
    """Calls that were sent ahead to a child which then is slow are given to others."""
    gate = tmp_path / "gate"
    await start(python_processes=2, concurrency=32)
    # Teaches the pool that `wait` is short, so that calls of it are sent ahead.
    gate.touch()
    await source.offer(*(call(module, number, "wait", [str(gate)]) for number in range(100)))
    await source.until_finished(100)
    gate.unlink()
    await source.offer(call(module, 100, "wait", [str(gate)]))
    await source.offer(*(call(module, number, "nothing") for number in range(101, 131)))
    await source.until_finished(130)
    gate.touch()
    finished = await source.until_finished(131)
    assert len({one.task_run_id for one in finished}) == 131
    assert finished[-1].task_run_id == "task-run-100"


async def test_as_many_long_calls_as_there_are_slots_run_at_once(source, start, module, tmp_path):
    worker = await start(concurrency=6)
    gate = tmp_path / "gate"
    await source.offer(*(call(module, number, "wait", [str(gate)]) for number in range(6)))
    pool = worker._executors["python"]._pool
    await wait_until(lambda: pool.process_count >= 6)
    gate.touch()
    assert len({one.output for one in await source.until_finished(6)}) > 1


@pytest.mark.parametrize(("fields", "status"), [({}, "cancelled"), ({"timeout_seconds": 0.05}, "failed")])
async def test_stopping_kills_the_child_and_what_it_started(source, start, module, tmp_path, fields, status):
    pids, tidy = tmp_path / "pids", tmp_path / "tidy"
    await start(grace_seconds=20.0)
    if not fields:
        await source.offer(call(module, 1, "hang", [str(pids), str(tidy)]))
        await wait_until(lambda: count_lines(pids) == 2)
        source.cancel = {AttemptKey("task-run-1", 1)}
        source.order()
    else:
        await source.offer(call(module, 1, "spin", **fields))
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.is_unconfirmed) == (status, False)
    if not fields:
        assert tidy.read_text() == "tidied"
        for pid in pids.read_text().split():
            stat = proc.read_stat(int(pid))
            assert stat is None or stat[0] == "Z"
    await source.offer(call(module, 2, "nothing"))
    assert (await source.until_finished(2))[1].status == "success"


async def test_a_waiting_call_is_cancelled_without_running(source, start, module, tmp_path):
    gate, pids = tmp_path / "gate", tmp_path / "pids"
    await start(python_processes=1, concurrency=2)
    await source.offer(call(module, 1, "wait", [str(gate)]), call(module, 2, "hang", [str(pids)]))
    await source.until(lambda: any(len(renewal) == 2 for renewal in source.renewals))
    source.cancel = {AttemptKey("task-run-2", 1)}
    source.order()
    finished = (await source.until_finished())[0]
    assert (finished.task_run_id, finished.status) == ("task-run-2", "cancelled")
    gate.touch()
    assert (await source.until_finished(2))[1].status == "success"
    assert not pids.exists()


async def test_inline_cancel_is_cooperative(source, start, module, tmp_path):
    up = tmp_path / "up"
    await start()
    await source.offer(call(module, 1, "hang_inline", [str(up)], isolation="inline"))
    await wait_until(up.exists)
    source.cancel = {AttemptKey("task-run-1", 1)}
    source.order()
    assert (await source.until_finished())[0].status == "cancelled"


async def test_inline_refuses_plain_functions(run):
    finished = await run("nothing", isolation="inline")
    assert finished.error_type == "bad_task"
    assert "needs an async function" in finished.error


async def test_limits_apply_to_one_call_only(source, start, module):
    await start(python_processes=1)
    await source.offer(
        call(module, 1, "eat", limits={"memory_mb": 100}),
        call(module, 2, "spin", limits={"cpu_seconds": 1}),
        call(module, 3, "add", [1, 2], limits={"memory_mb": 500}),
    )
    found = {one.task_run_id: one for one in await source.until_finished(3)}
    assert found["task-run-1"].error_type == "oom"
    assert found["task-run-2"].error_type == "timeout"
    assert (found["task-run-3"].output, found["task-run-3"].usage["peak_memory_bytes"] > 0) == (3, True)


async def test_children_that_cannot_start_fail_the_waiting_calls(source, start, module, monkeypatch):
    monkeypatch.setattr("rota.worker.python_process.limit_argv", lambda argv, limits: ["/no/such/python"])
    await start()
    await source.offer(call(module, 1, "nothing"))
    finished = (await source.until_finished())[0]
    assert finished.error_type == "bad_task"
    assert "no Python process can be started on this worker" in finished.error
