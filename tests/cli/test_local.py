"""Commands that need no server: what they print and how they end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rota.cli import main as module
from rota.cli.lazy import LazyGroup
from rota.domain import errors
from tests.architecture.source import ROOT

GOOD = "name: good\nschedule_cron: '0 2 * * *'\ntasks:\n  - {name: a, command: 'true'}\n"


# These run until they are stopped.
SERVERS = {"rota up", "rota api", "rota scheduler", "rota node", "rota worker"}


def _walk(command: click.Command, path: str) -> list[str]:
    """Every command below this one that does something of its own."""
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    found = [path] if command.invoke_without_command else []
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        found += _walk(inner, f"{path} {name}")
    return found


def _commands() -> list[str]:
    return _walk(module.cli, "rota")


def test_every_command_is_documented():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(rota [a-z -]+)` \|", page, flags=re.MULTILINE))
    assert documented == set(_commands())


def test_every_exit_code_is_documented():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| ([0-9]+) \|", page, flags=re.MULTILINE)}
    assert documented == {0, module.EXIT_FAILURE, module.EXIT_INTERRUPTED, *module.EXIT_CODES.values()}


@pytest.mark.parametrize("entry", module.COMMANDS, ids=lambda entry: entry.name)
def test_the_table_says_of_each_command_what_it_says_itself(entry):
    command = entry.load()
    assert command.help
    assert entry.about.endswith(".")
    assert isinstance(module.cli, LazyGroup)


@pytest.mark.parametrize("name", _commands())
def test_every_command_explains_itself(run, name):
    done = run(*name.split()[1:], "--help")
    assert done.code == 0
    assert "Usage: rota" in done.output


@pytest.mark.parametrize("name", sorted(set(_commands()) - SERVERS))
def test_every_command_can_answer_with_json(run, name):
    assert "--json" in run(*name.split()[1:], "--help").output


def test_help_loads_neither_server_nor_database():
    code = "import sys; from rota.cli.main import main; main(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"sqlalchemy", "fastapi", "aiohttp", "alembic", "uvicorn", "yaml", "prometheus_client"}
    assert not [name for name in heavy if f"'{name}'" in done.stderr]
    assert "Start everything in one process" in done.stdout


def test_a_good_definition(run):
    Path("good.yaml").write_text(GOOD)
    done = run("validate", "good.yaml")
    assert (done.code, done.errors) == (0, "")
    assert "good      1      1          good.yaml" in done.output
    assert json.loads(run("validate", ".", "--json").output)["items"] == [
        {"workflow": "good", "tasks": 1, "schedules": 1, "file": "good.yaml"}
    ]


def test_faults_of_all_files_are_told_with_their_lines(run):
    Path("one.yaml").write_text(GOOD.replace("0 2 * * *", "0 0 31 2 *"))
    Path("two.json").write_text('{"name": "two",\n "tasks": [\n  {"name": "a", "comand": "true"}]}')
    done = run("validate", ".")
    assert done.code == 2
    assert "one.yaml:2: schedule_cron: no date ever matches" in done.errors
    assert "two.json:3: tasks[0].comand" in done.errors
    problem = json.loads(run("validate", ".", "--json").errors)
    assert problem["code"] == "invalid_input"
    assert len(problem["errors"]) >= 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"name: a\nname: b\n", "broken.yaml:2: 'name' is given twice"),
        (b"name: \xff\n", "broken.yaml:1: is not UTF-8 text"),
        (b"tasks: [\n", "broken.yaml:2"),
        (b"- 1\n", "an object, not"),
        (b"a: !!python/object:os.system {}\n", "broken.yaml:1: could not determine a constructor"),
        (b"", "holds no definition"),
        (b"[" * 3000, "broken.yaml"),
        (b"a\n\x00", "broken.yaml:2: the character U+0000 is not allowed"),
    ],
)
def test_a_broken_file(run, content, reason):
    Path("broken.yaml").write_bytes(content)
    done = run("validate", "broken.yaml")
    assert done.code == 2
    assert reason in done.errors
    assert "Traceback" not in done.errors


def test_a_missing_file(run):
    assert "none.yaml: is neither a file nor a folder" in run("validate", "none.yaml").errors


def test_dates_and_words_of_yaml_stay_what_was_written(run):
    text = GOOD + "start_at: 2026-01-01\ntags: [on, yes, no]\non:\n  - {workflow: other}\n"
    Path("good.yaml").write_text(text)
    assert run("validate", "good.yaml").code == 0


def test_cron_shows_what_the_clock_does(run):
    arguments = ("cron", "30 3 * * *", "--tz", "Europe/Riga", "--from", "2026-03-28", "--count", "2")
    done = run(*arguments, "--json")
    fires = json.loads(done.output)["items"]
    assert [fire["local"] for fire in fires] == ["2026-03-28T03:30:00+02:00", "2026-03-29T04:00:00+03:00"]
    assert fires[1]["at"] == "2026-03-29T01:00:00Z"
    assert fires[1]["note"]
    assert "2026-03-29T04:00:00+03:00" in run(*arguments).output


def test_cron_takes_intervals_and_refuses_nonsense(run):
    items = json.loads(run("cron", "every 90s", "--count", "3", "--from", "2026-01-01", "--json").output)["items"]
    assert [item["at"][11:19] for item in items] == ["00:00:00", "00:01:30", "00:03:00"]
    assert run("cron", "0 0 31 2 *").code == 2
    assert "did you mean" in run("cron", "* * * * *", "--tz", "Europe/Rigga").errors


def test_the_database_commands(run, tmp_path):
    place = ("--data-dir", str(tmp_path / "data"))
    assert run("db", "upgrade", *place).code == 0
    assert "up to date" in run("db", "check", *place).output
    facts = json.loads(run("db", "current", "--json", *place).output)
    assert facts["is_right"]
    assert facts["current"] == facts["needed"]
    assert run("db", "downgrade", "base", "--yes", *place).code == 0
    done = run("db", "check", *place)
    assert done.code == 4
    assert "Run `rota db upgrade`" in done.errors


def test_version(run):
    assert run("--version").output.startswith("rota ")
    assert set(json.loads(run("version", "--json").output)) == {"rota", "python", "system"}


def test_doctor_finds_what_is_wrong(run, monkeypatch):
    monkeypatch.setenv("ROTA_PROT", "8080")
    monkeypatch.setenv("ROTA_SERVER", "http://127.0.0.1:1")
    done = run("doctor", "--json")
    assert done.code == 1
    found = {item["what"]: item for item in json.loads(done.output)["items"]}
    assert found["environment"]["detail"] == "ROTA_PROT is not a setting; is ROTA_PORT meant?"
    assert found["database"]["is_good"]
    assert not found["server"]["is_good"]


def test_usage_errors(run):
    assert run("nonsense").code == 2
    assert run("cron").code == 2
    assert run("runs", "list", "--limit", "0").code == 2
    assert run().code == 2


def test_the_name_of_every_error_kind_has_its_exit_code():
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RotaError)}
    unmapped = {kind.__name__ for kind in kinds - set(module.EXIT_CODES)}
    assert unmapped == {"RotaError", "TooLarge", "TooManyRequests", "CapacityExceeded"}
