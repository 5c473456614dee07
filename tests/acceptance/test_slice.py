"""The thin slice, with real processes: save, trigger, schedule, look, execute elsewhere."""

from __future__ import annotations

import signal

from tests.acceptance.processes import wait_until

CHAIN = (
    {"name": "extract", "command": "echo 3 1 2 > numbers; echo extracted"},
    {"name": "transform", "command": "tr ' ' '\\n' < numbers | sort", "depends_on": ["extract"]},
    {"name": "load", "command": "echo loaded >&2", "depends_on": ["transform"]},
)


def test_three_dependent_commands(start, home):
    server = start()
    assert server.get("/health")["status"] == "healthy"
    tasks = [{**task, "working_directory": str(home)} for task in CHAIN]
    server.define(*tasks)
    found = server.wait_for_run(server.trigger())
    assert [found[name]["attempt"] for name in ("extract", "transform", "load")] == [1, 1, 1]
    assert server.read_log(found["extract"]["id"]) == "extracted\n"
    assert server.read_log(found["transform"]["id"]) == "1\n2\n3\n"
    assert server.read_log(found["load"]["id"]) == "loaded\n"
    assert found["extract"]["finished_at"] <= found["transform"]["started_at"]
    assert found["transform"]["finished_at"] <= found["load"]["started_at"]
    assert server.terminate() == 0
    assert "Traceback" not in server.errors


def test_a_cron_that_fires_every_second(start):
    server = start()
    server.define({"name": "tick", "command": "true"}, schedule_cron="* * * * * *")

    def look():
        found = server.get("/workflow-runs?workflow=flow&status=success")["items"]
        return found if len(found) >= 3 else None

    runs = wait_until(look, "three runs")
    assert {run["trigger"] for run in runs} == {"schedule"}
    ticks = [run["logical_date"] for run in runs]
    assert len(set(ticks)) == len(ticks)


def test_definitions_in_a_folder(start, home):
    folder = home / "flows"
    folder.mkdir()
    (folder / "good.yaml").write_text("name: good\ntasks:\n  - {name: a, command: echo from a file}\n")
    (folder / "bad.yaml").write_text("name: bad\ntasks:\n  - {name: a, command: 'true', depends_on: [b]}\n")
    server = start("--workflows", str(folder))
    wait_until(lambda: server.request("GET", "/workflows/good")[0] == 200, "the file to be applied")
    found = server.wait_for_run(server.trigger("good"))
    assert server.read_log(found["a"]["id"]) == "from a file\n"
    (fault,) = wait_until(lambda: [line for line in server.log if line["message"] == "import_error"], "the fault")
    assert fault["place"].endswith("bad.yaml:3: tasks[0].depends_on[0]")
    (folder / "bad.yaml").write_text("name: bad\ntasks:\n  - {name: a, command: 'true'}\n")
    wait_until(lambda: server.request("GET", "/workflows/bad")[0] == 200, "the mended file to be applied")


def test_a_worker_elsewhere_executes_over_http(start, start_worker):
    server = start("--workers", "0")
    server.define({"name": "a", "command": "echo $ROTA_TASK"}, {"name": "b", "command": "true", "depends_on": ["a"]})
    run_id = server.trigger()
    worker = start_worker(server, "--worker-id", "far", "--concurrency", "2")
    found = server.wait_for_run(run_id)
    assert server.read_log(found["a"]["id"]) == "a\n"
    (known,) = server.get("/workers")["items"]
    assert known["name"] == "far"
    assert {row["worker_id"] for row in found.values()} <= {known["id"], None}
    assert worker.terminate() == 0
    assert server.get("/workers")["items"] == []
    assert "Traceback" not in worker.errors


def test_ending_lets_a_running_task_end(start, home):
    server = start()
    server.define({"name": "a", "command": f"touch {home}/begun; while [ ! -e {home}/go ]; do sleep 0.05; done"})
    run_id = server.trigger()
    wait_until((home / "begun").exists, "the task to run")
    server.popen.send_signal(signal.SIGTERM)
    wait_until(lambda: any(line["message"] == "draining" for line in server.log), "the drain")
    (home / "go").touch()
    assert server.popen.wait(20) == 0
    again = start()
    assert again.wait_for_run(run_id)["a"]["attempt"] == 1


def test_the_command_line_speaks_to_a_server(start, home, rota):
    server = start()
    server.define(*CHAIN[:1], name="one", schedule_cron="0 0 1 1 *")
    address = ("--server", server.url)
    done = rota("workflow", "trigger", "one", "--wait", *address)
    assert (done.returncode, done.stderr) == (0, "")
    run_id = done.stdout.split()[1]
    assert "extracted" in rota("logs", run_id, *address).stdout
    assert rota("logs", run_id, "extract", *address).stdout == "extracted\n"
    assert run_id in rota("runs", "list", "--status", "success", *address).stdout
    assert "has no task load" in rota("logs", run_id, "load", *address).stderr
    assert rota("runs", "show", "no-such-run", *address).returncode == 3
    assert rota("runs", "cancel", run_id, *address).returncode == 5
    submitted = rota("job", "submit", "--command", "echo a job", *address)
    job_id = submitted.stdout.split()[1]
    wait_until(lambda: "success" in rota("job", "status", job_id, *address).stdout, "the job")
    assert rota("job", "logs", job_id, *address).stdout == "a job\n"
    assert job_id in rota("job", "list", *address).stdout
    assert rota("job", "submit", *address).returncode == 2
    assert rota("doctor", *address, ROTA_DATABASE_URL="").returncode == 0


def test_runs_and_versions_on_the_command_line(start, home, rota):
    server = start()
    server.define({"name": "a", "command": "echo {{ params.day }}"}, name="one", params={"day": {"type": "string"}})
    address = ("--server", server.url)
    assert "params.day" in rota("workflow", "trigger", "one", *address).stderr
    given = ("-p", "day=monday", "--label", "team=data", "--note", "by hand", "--wait")
    done = rota("workflow", "trigger", "one", *given, *address)
    assert (done.returncode, done.stderr) == (0, "")
    run_id = done.stdout.split()[1]
    again = rota("runs", "retry", run_id, "--whole", "--note", "once more", *address).stdout
    second = again.split()[1]
    assert again == f"run {second} repeats {run_id}\n"
    server.wait_for_run(second)
    compared = rota("runs", "compare", run_id, second, *address).stdout
    assert "success" in compared
    assert rota("runs", "retry", run_id, "--task", "a", "--wait", *address).returncode == 0
    assert rota("runs", "retry", run_id, "--task", "zz", *address).returncode == 2
    definition = home / "one.yaml"
    definition.write_text("name: one\nparams: {day: friday}\ntasks:\n  - {name: a, command: 'false'}\n")
    assert rota("apply", str(definition), *address).returncode == 0
    assert rota("workflow", "versions", "one", *address).stdout.splitlines()[1].startswith("2 ")
    shown = rota("workflow", "versions", "one", "--diff", "2", *address).stdout
    assert '~ task a: command: "echo {{ params.day }}" -> "false"' in shown
    assert "no schedule" in rota("workflow", "next", "one", *address).stdout
    assert "version 3" in rota("workflow", "rollback", "one", "1", *address).stdout
    assert rota("workflow", "rollback", "one", "9", *address).returncode == 3
    assert rota("workflow", "delete", "one", "--yes", *address).returncode == 0
    assert rota("workflow", "show", "one", *address).returncode == 3
