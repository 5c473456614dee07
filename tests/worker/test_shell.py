"""Shell tasks for real: exits, signals, environment, output, limits."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rota.domain.work import Finished
from tests.worker.conftest import StartWorker
from tests.worker.driver import ScriptedSource, make_assignment

PYTHON = sys.executable


@pytest.fixture
def run(source: ScriptedSource, start_worker: StartWorker):
    """Runs one shell task on a fresh worker and answers its result."""

    async def run(**fields: Any) -> Finished:
        await start_worker(**fields.pop("options", {}))
        await source.offer(make_assignment(1, **fields))
        return (await source.until_finished())[0]

    return run


async def test_success_has_exit_code_usage_and_log(run, source):
    finished = await run(command="echo out; echo err >&2")
    assert (finished.status, finished.exit_code, finished.error_type) == ("success", 0, None)
    assert source.log() == b"out\nerr\n"
    assert finished.usage["peak_memory_bytes"] > 0
    assert finished.usage["cpu_seconds"] >= 0


async def test_words_are_executed_as_they_stand(run, source):
    finished = await run(command=["printf", "%s|", "a b", "$HOME", "*"])
    assert finished.status == "success"
    assert source.log() == b"a b|$HOME|*|"


@pytest.mark.parametrize(
    ("fields", "status", "error_type", "exit_code", "sentence"),
    [
        ({"command": "exit 3"}, "failed", "exit_code", 3, "exit code 3"),
        ({"command": "kill -9 $$"}, "failed", "signal", -9, "ended by signal 9 (SIGKILL)"),
        ({"command": "kill -SEGV $$"}, "failed", "signal", -11, "ended by signal 11 (SIGSEGV)"),
        ({"command": ["no-such-program-here"]}, "failed", "bad_task", None, "No such file or directory"),
        ({"command": ["/etc/passwd"]}, "failed", "bad_task", None, "Permission denied"),
        ({"command": "no-such-program-here"}, "failed", "exit_code", 127, "was not found"),
        ({"command": []}, "failed", "bad_task", None, "non-empty list"),
        ({"command": "a\0b"}, "failed", "bad_task", None, "null"),
        ({"command": "true", "working_directory": "/no/such"}, "failed", "bad_task", None, "working_directory"),
        ({"command": "true", "kind": "teleport"}, "failed", "bad_task", None, "it was given 'teleport'"),
    ],
)
async def test_ends_are_told_apart(run, fields, status, error_type, exit_code, sentence):
    finished = await run(**fields)
    assert (finished.status, finished.error_type, finished.exit_code) == (status, error_type, exit_code)
    assert sentence in finished.error


async def test_environment_working_directory_and_stdin(run, source, tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_TOKEN", "worker-secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    finished = await run(
        command="pwd; cat; env",
        working_directory=str(tmp_path),
        stdin="fed\n",
        env={"GREETING": "hi", "NUMBER": 5},
        traceparent="00-abc",
    )
    assert finished.status == "success"
    lines = source.log().decode().splitlines()
    assert lines[:2] == [str(tmp_path), "fed"]
    expected = {
        "ROTA_RUN_ID=run-1",
        "ROTA_TASK=step",
        "ROTA_TASK_RUN_ID=task-run-1",
        "ROTA_ATTEMPT=1",
        "ROTA_IDEMPOTENCY_KEY=key-1",
        "ROTA_LOGICAL_DATE=2026-01-02T03:04:05Z",
        "TRACEPARENT=00-abc",
        "GREETING=hi",
        "NUMBER=5",
    }
    assert expected <= set(lines)
    assert "worker-secret" not in source.log().decode()
    assert "postgres://secret" not in source.log().decode()


async def test_large_stdin_and_large_environment_get_through(run):
    finished = await run(
        command="wc -c; echo ${#BIG}", stdin="x" * 3_000_000, env={"BIG": "y" * 120_000}, output="text"
    )
    assert finished.output.split() == ["3000000", "120000"]


@pytest.mark.parametrize(
    ("command", "form", "output"),
    [
        ("echo noise; echo '{\"a\": [1, null]}'; echo; echo", "json", {"a": [1, None]}),
        ("printf 5", "json", 5),
        ("echo '\"text\"'; echo other >&2", "json", "text"),
        ("echo one; echo two", "text", "one\ntwo"),
        ("true", "text", ""),
        ("echo 5", "none", None),
    ],
)
async def test_output_is_read(run, command, form, output):
    finished = await run(command=command, output=form)
    assert (finished.status, finished.output) == ("success", output)


@pytest.mark.parametrize(
    ("command", "form", "sentence"),
    [
        ("echo '{broken'", "json", "is not JSON"),
        ("true", "json", "it wrote none"),
        (r"printf '\377\376'", "json", "is not JSON"),
        ("printf '\"'; head -c 1100000 /dev/zero | tr '\\0' x; printf '\"'", "json", "1,048,576 are allowed"),
        ("head -c 1100000 /dev/zero | tr '\\0' x", "text", "1,048,576 are allowed"),
    ],
)
async def test_bad_output_fails_the_task(run, command, form, sentence):
    finished = await run(command=command, output=form)
    assert (finished.status, finished.error_type, finished.exit_code) == ("failed", "bad_output", 0)
    assert sentence in finished.error


async def test_output_and_error_are_told_apart_when_output_is_wanted(run, source):
    await run(command="echo 1; echo warn >&2", output="json")
    assert {chunk.stream: chunk.data for chunk in source.chunks()} == {"stdout": b"1\n", "stderr": b"warn\n"}


async def test_timeout_is_not_a_plain_failure(run):
    finished = await run(command="sleep 600", timeout_seconds=0.05)
    assert (finished.status, finished.error_type) == ("failed", "timeout")
    assert finished.error == "timed out after 0.05 s"
    assert not finished.is_unconfirmed


async def test_memory_limit_is_told_as_oom(run):
    code = "import os; x = []\nwhile True: x.append(os.urandom(1_000_000))"
    finished = await run(command=[PYTHON, "-c", code], limits={"memory_mb": 64})
    assert (finished.status, finished.error_type) == ("failed", "oom")
    assert finished.error == "used more memory than limits.memory_mb = 64"


async def test_memory_of_the_whole_tree_counts(run):
    code = "import os; x = os.urandom(40_000_000); os.fork(); import time; time.sleep(600)"
    finished = await run(command=[PYTHON, "-c", code], limits={"memory_mb": 80})
    assert finished.error_type == "oom"


async def test_processor_time_limit(run):
    finished = await run(command="while :; do :; done", limits={"cpu_seconds": 1})
    assert (finished.status, finished.error_type) == ("failed", "timeout")
    assert finished.error == "used more processor time than limits.cpu_seconds = 1"
    assert finished.usage["cpu_seconds"] > 0.5


async def test_output_limit_ends_a_flood(run):
    finished = await run(command="yes", limits={"output_mb": 1})
    assert (finished.status, finished.error_type) == ("failed", "bad_output")
    assert finished.error == "wrote more than limits.output_mb"


async def test_open_files_limit(run, source):
    await run(command="ulimit -n", limits={"open_files": 33})
    assert source.log() == b"33\n"


async def test_secrets_stay_out_of_error_and_log(run, source):
    finished = await run(command=["/hunter2-program"], secrets=("hunter2",))
    assert "hunter2" not in finished.error
    assert "***" in finished.error
