"""Cancelled means dead: whole trees, verified in /proc."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota.domain.work import AttemptKey
from rota.worker import proc
from rota.worker.launch import Ended
from rota.worker.processes import Processes
from tests.worker.driver import count_lines, make_assignment, wait_until

PYTHON = sys.executable

# Forks twice, leaves its session, forgets its environment if told so, ignores TERM, and writes down its number.
DAEMON = """
import os, signal, sys, time
BARE = "import os, sys, time; open(sys.argv[1], 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if "bare" in sys.argv:
            os.execve(sys.executable, [sys.executable, "-c", BARE, sys.argv[1]], {})
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1], "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def is_alive(pid: int) -> bool:
    stat = proc.read_stat(pid)
    return stat is not None and stat[0] != "Z"


def find_marked(text: str) -> list[int]:
    """Every process that has the text in its environment."""
    return [pid for pid in proc.list_processes() if text.encode() in proc.read_bytes(f"/proc/{pid}/environ")]


def read_numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()]


async def wait_for_lines(path: Path, count: int) -> list[int]:
    """The process numbers that the tasks have written down, once there are so many."""
    await wait_until(lambda: count_lines(path) >= count)
    return read_numbers(path)


@pytest.fixture
def daemon(tmp_path: Path) -> Path:
    script = tmp_path / "daemon.py"
    script.write_text(DAEMON)
    return script


async def test_cancel_kills_trees_with_daemons(source, start_worker, daemon, tmp_path):
    count = 5
    await start_worker(concurrency=count, grace_seconds=0.2)
    pids = tmp_path / "pids"
    command = f"trap '' TERM; {PYTHON} {daemon} {pids}; sleep 600 & sleep 600"
    await source.offer(*(make_assignment(number, command=command) for number in range(count)))
    daemons = await wait_for_lines(pids, count)
    assert all(map(is_alive, daemons))
    source.cancel = {AttemptKey(f"task-run-{number}", 1) for number in range(count)}
    source.order()
    finished = await source.until_finished(count)
    assert {one.status for one in finished} == {"cancelled"}
    assert not any(one.is_unconfirmed for one in finished)
    assert not any(map(is_alive, daemons))
    assert find_marked("ROTA_TASK_RUN_ID=task-run-") == []


async def test_a_task_that_ends_leaves_nothing_behind(source, start_worker, daemon, tmp_path):
    await start_worker()
    pids = tmp_path / "pids"
    await source.offer(
        make_assignment(1, command=f"{PYTHON} {daemon} {pids}; while [ ! -s {pids} ]; do sleep 0.01; done")
    )
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.is_unconfirmed) == ("success", False)
    assert not any(map(is_alive, await wait_for_lines(pids, 1)))


async def test_a_daemon_without_a_marker_is_found_as_well(source, start_worker, daemon, tmp_path):
    await start_worker()
    pids = tmp_path / "pids"
    await source.offer(
        make_assignment(1, command=f"{PYTHON} {daemon} {pids} bare; while [ ! -s {pids} ]; do sleep 0.01; done")
    )
    finished = (await source.until_finished())[0]
    assert finished.status == "success"
    assert not any(map(is_alive, await wait_for_lines(pids, 1)))


async def test_term_comes_first(source, start_worker, tmp_path):
    await start_worker(grace_seconds=20.0)
    ready = tmp_path / "ready"
    command = f"trap 'echo cleaned up; exit 7' TERM; echo $$ > {ready}; while :; do sleep 0.01; done"
    await source.offer(make_assignment(1, command=command))
    await wait_for_lines(ready, 1)
    source.cancel = {AttemptKey("task-run-1", 1)}
    source.order()
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.exit_code) == ("cancelled", 7)
    assert b"cleaned up" in source.log()


async def test_a_stopped_process_is_killed_too(source, start_worker, tmp_path):
    await start_worker(grace_seconds=0.1)
    ready = tmp_path / "ready"
    await source.offer(make_assignment(1, command=f"trap '' TERM; echo $$ > {ready}; kill -STOP $$; sleep 600"))
    pid = (await wait_for_lines(ready, 1))[0]
    source.cancel = {AttemptKey("task-run-1", 1)}
    source.order()
    finished = (await source.until_finished())[0]
    assert (finished.status, is_alive(pid)) == ("cancelled", False)


WORKER_PROCESS = """
import asyncio, os, sys
from rota.worker.processes import Processes
async def main():
    processes = Processes()
    processes.open()
    for _ in range(3):
        processes.spawn(["/bin/sh", "-c", sys.argv[1]], print, environment={}, descriptors={1: os.dup(2)})
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_a_killed_worker_leaves_no_orphan(daemon, tmp_path):
    pids = tmp_path / "pids"
    command = f"trap '' TERM; echo $$ >> {pids}; {PYTHON} {daemon} {pids}; sleep 600"
    worker = await asyncio.create_subprocess_exec(PYTHON, "-c", WORKER_PROCESS, command)
    found = await wait_for_lines(pids, 6)
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    await wait_until(lambda: not any(map(is_alive, found)))


async def find_launcher(guard: int) -> int:
    """The only child of the guard."""
    await wait_until(lambda: proc.Children().list_of(guard) != [])
    (launcher,) = proc.Children().list_of(guard)
    return launcher


@pytest.mark.parametrize("killed", ["worker and launcher", "worker and guard", "guard, then worker"])
async def test_who_is_killed_beside_the_worker_makes_no_difference(daemon, tmp_path, killed):
    pids = tmp_path / "pids"
    command = f"trap '' TERM; echo $$ >> {pids}; {PYTHON} {daemon} {pids} bare; sleep 600"
    worker = await asyncio.create_subprocess_exec(PYTHON, "-c", WORKER_PROCESS, command)
    found = await wait_for_lines(pids, 6)
    (guard,) = proc.Children().list_of(worker.pid)
    launcher = await find_launcher(guard)
    others = [launcher if "launcher" in killed else guard]
    if killed.startswith("guard"):
        os.kill(others.pop(), signal.SIGKILL)
        await wait_until(lambda: not is_alive(guard))
        assert all(map(is_alive, found))
    for pid in (*others, worker.pid):
        os.kill(pid, signal.SIGKILL)
    await worker.wait()
    await wait_until(lambda: not any(map(is_alive, [*found, launcher, guard])))


LIMITED = """
import asyncio, os, resource
from rota.worker.processes import Processes
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    processes, ends, pipes = Processes(), asyncio.Queue(), []
    processes.open()
    for _ in range(100):
        reading, writing = os.pipe()
        pipes.append(reading)
        processes.spawn(["/bin/sh", "-c", "ulimit -n"], ends.put_nowait, environment={}, descriptors={1: writing})
    codes = {(await ends.get()).exit_code for _ in pipes}
    print(codes, {os.read(reading, 100) for reading in pipes})
    await processes.close()
asyncio.run(main())
"""


async def test_more_programs_than_a_process_may_usually_open_files():
    done = await asyncio.to_thread(subprocess.run, [PYTHON, "-c", LIMITED], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("{0} {b'60\\n'}", "")


async def test_a_killed_launcher_leaves_no_orphan_and_is_replaced(tmp_path):
    processes = Processes()
    processes.open()
    pids = tmp_path / "pids"
    ends: asyncio.Queue[Ended] = asyncio.Queue()
    try:
        command = ["/bin/sh", "-c", f"echo $$ >> {pids}; sleep 600"]
        for _ in range(3):
            processes.spawn(command, ends.put_nowait, environment={}, descriptors={1: os.dup(2)})
        found = await wait_for_lines(pids, 3)
        assert processes.guard_pid is not None
        os.kill(await find_launcher(processes.guard_pid), signal.SIGKILL)
        lost = [await asyncio.wait_for(ends.get(), 30) for _ in range(3)]
        assert all(end.is_lost and end.is_verified for end in lost)
        assert not any(map(is_alive, found))
        processes.spawn(["true"], ends.put_nowait, environment={}, descriptors={1: os.dup(2)})
        assert (await asyncio.wait_for(ends.get(), 30)).exit_code == 0
    finally:
        await processes.close()


def test_children_are_found_without_the_kernels_lists():
    child = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"], stdout=subprocess.PIPE)
    try:
        for has_lists in (True, False):
            children = proc.Children(has_lists=has_lists)
            assert child.pid in children.list_of(os.getpid())
            assert child.pid in children.list_trees([os.getpid()])
    finally:
        for pid in proc.Children().list_trees([child.pid]):
            os.kill(pid, signal.SIGKILL)
        child.communicate()
