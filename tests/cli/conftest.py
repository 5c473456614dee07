"""Commands inside the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rota.cli.main import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    output: str
    errors: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in an empty folder, without any settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ROTA_SERVER", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Done:
        code = main(arguments)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call
