"""A watched folder: what changes is applied, what is broken is told and breaks nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rota.scheduler.folder import FolderDuty
from rota.store.definitions import find_workflow

ONE = "name: one\ntasks:\n  - {name: a, command: 'true'}\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "flows").mkdir()
    return tmp_path / "flows"


def _write(path: Path, text: str, moment: int) -> None:
    """The file with this text, changed at this moment."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(moment, moment))


async def _find(bench, name):
    return await bench.engine.database.read(lambda tx: find_workflow(tx, "default", name=name))


async def test_everything_is_applied_at_first_and_then_only_what_changes(bench, folder):
    _write(folder / "one.yaml", ONE, 1)
    _write(folder / "deep" / "two.json", '{"name": "two", "tasks": [{"name": "a", "command": "true"}]}', 1)
    _write(folder / ".hidden.yaml", "name: hidden", 1)
    _write(folder / "notes.txt", "not a definition", 1)
    duty = FolderDuty(bench.engine, folder)
    assert await duty.run_once() == 2
    assert await duty.run_once() == 0
    _write(folder / "one.yaml", ONE.replace("true", "false"), 2)
    assert await duty.run_once() == 1
    assert (await _find(bench, "one")).current_version == 2
    assert (await _find(bench, "two")).current_version == 1
    assert duty.import_errors == {}


async def test_a_broken_file_is_told_with_its_line_and_breaks_no_other(bench, folder):
    _write(folder / "a.yaml", "name: a\ntasks:\n  - name: x\n    command: 'true'\n    depends_on: [y]\n", 1)
    _write(folder / "b.yaml", "name: b\ntasks: [\n", 1)
    _write(folder / "one.yaml", ONE, 1)
    duty = FolderDuty(bench.engine, folder)
    with capture_logs() as lines:
        assert await duty.run_once() == 1
    told = {
        line["place"].removeprefix(str(folder)): line["reason"] for line in lines if line["event"] == "import_error"
    }
    assert any(place.startswith("/a.yaml:5: tasks[0].depends_on") for place in told)
    assert any(place.startswith("/b.yaml:3") for place in told)
    assert duty.import_errors.keys() == {folder / "a.yaml", folder / "b.yaml"}
    with capture_logs() as lines:
        assert await duty.run_once() == 0
    assert lines == []
    _write(folder / "a.yaml", ONE.replace("one", "a"), 2)
    (folder / "b.yaml").unlink()
    assert await duty.run_once() == 1
    assert duty.import_errors == {}


async def test_a_name_that_two_files_define_is_refused_in_the_second(bench, folder):
    _write(folder / "a.yaml", ONE, 1)
    _write(folder / "b.yaml", ONE.replace("true", "false"), 1)
    duty = FolderDuty(bench.engine, folder)
    assert await duty.run_once() == 1
    assert "a.yaml already" in str(duty.import_errors[folder / "b.yaml"])
    (folder / "a.yaml").unlink()
    _write(folder / "b.yaml", ONE.replace("true", "false"), 2)
    assert await duty.run_once() == 1


async def test_a_file_that_is_gone_leaves_its_workflow(bench, folder):
    _write(folder / "one.yaml", ONE, 1)
    duty = FolderDuty(bench.engine, folder)
    await duty.run_once()
    (folder / "one.yaml").unlink()
    assert await duty.run_once() == 0
    assert await _find(bench, "one") is not None


async def test_a_paused_workflow_stays_paused_unless_the_file_says_otherwise(bench, folder):
    _write(folder / "one.yaml", ONE, 1)
    await FolderDuty(bench.engine, folder).run_once()
    await bench.engine.set_active(await _find(bench, "one"), is_active=False)
    restarted = FolderDuty(bench.engine, folder)
    await restarted.run_once()
    assert not (await _find(bench, "one")).is_active
    _write(folder / "one.yaml", ONE + "is_active: true\n", 2)
    await restarted.run_once()
    assert (await _find(bench, "one")).is_active
