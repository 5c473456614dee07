"""Where settings come from, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.errors import InvalidInput
from rota.settings import (
    Settings,
    choose_database_url,
    find_database_file,
    hide_password,
    is_loopback,
    list_settings,
    load_settings,
)
from rota.settings.values import parse_duration, write_duration
from tests.architecture.source import ROOT


@pytest.fixture(autouse=True)
def _away_from_files(tmp_path, monkeypatch):
    """No `rota.toml` of this machine takes part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def _load(flags=None, environment=None, document=None):
    if document is not None:
        Path("rota.toml").write_text(document)
    return load_settings(flags or {}, environment or {})


def test_defaults_are_for_one_machine():
    settings = _load()
    assert is_loopback(settings.host)
    assert settings.port == 8080
    assert settings.workers == 1
    assert choose_database_url(settings).endswith("/rota/rota.db")


def test_flags_win_over_environment_over_file_over_defaults():
    document = "port = 1\nlog_level = 'debug'\nconcurrency = 3"
    environment = {"ROTA_PORT": "2", "ROTA_LOG_LEVEL": "error"}
    settings = _load({"port": "3", "workers": None}, environment, document)
    assert (settings.port, settings.log_level, settings.concurrency, settings.workers) == (3, "error", 3, 1)


@pytest.mark.parametrize("info", list_settings(), ids=lambda info: info.name)
def test_every_setting_has_a_variable_and_a_flag(info):
    assert info.variables[0] == f"ROTA_{info.name.upper()}"
    assert info.flag == f"--{info.name.replace('_', '-')}"
    assert info.about


OLDER_NAMES = [
    ("PORT", "81", "port", 81),
    ("HTTP_PORT", "82", "port", 82),
    ("DATABASE_URL", "postgres://u:p@h/d", "database_url", "postgres://u:p@h/d"),
    ("WORKER_ID", "w-7", "worker_id", "w-7"),
    ("NODE_ID", "n-7", "node_id", "n-7"),
    ("METRICS_PORT", "9999", "metrics_port", 9999),
    ("LOG_LEVEL", "WARNING", "log_level", "warning"),
    ("DATA_DIR", "/data", "data_dir", Path("/data")),
    ("SLOT_GAP", "15s", "slot_gap_seconds", 15.0),
    ("JOB_INPROGRESS_TIMEOUT", "5m", "lease_seconds", 300.0),
    ("EXECUTION_HISTORY_RETENTION", "7d", "retention_seconds", 604_800.0),
    ("DB_MAX_OPEN_CONNS", "25", "db_max_open_conns", 25),
]


@pytest.mark.parametrize(("variable", "given", "field", "expected"), OLDER_NAMES)
def test_older_names_work(variable, given, field, expected):
    assert getattr(_load(environment={variable: given}), field) == expected


def test_our_own_name_wins_over_the_older_one():
    assert _load(environment={"PORT": "81", "ROTA_PORT": "82"}).port == 82


def test_empty_variables_are_not_set():
    assert _load(environment={"ROTA_PORT": "", "PORT": ""}).port == 8080


@pytest.mark.parametrize(
    ("variable", "given", "allowed"),
    [
        ("ROTA_PORT", "70000", "0 to 65535"),
        ("ROTA_PORT", "http", "whole number"),
        ("ROTA_LOG_LEVEL", "loud", "debug, info, warning, error"),
        ("ROTA_RETENTION", "-5m", "such as 500ms, 90s"),
        ("ROTA_LEASE", "1s", "from 3s to 1h"),
        ("ROTA_SERVER", "ftp://host", "http://127.0.0.1:8080"),
        ("ROTA_SERVER", "http://host:99999", "http://127.0.0.1:8080"),
        ("ROTA_LABELS", "gpu", "name=value"),
        ("ROTA_HTTP_ALLOW", "10.0.0.0/99", "127.0.0.0/8"),
        ("ROTA_QUEUES", " , ", "at least one"),
        ("ROTA_WORKERS", "1.5", "whole number"),
        ("SLOT_GAP", "soon", "such as 500ms"),
    ],
)
def test_a_wrong_value_names_variable_value_and_what_is_allowed(variable, given, allowed):
    with pytest.raises(InvalidInput) as caught:
        _load(environment={variable: given})
    (fault,) = caught.value.errors
    assert fault.field == variable
    assert repr(given) in fault.reason
    assert allowed in fault.reason


def test_all_wrong_values_are_told_at_once():
    with pytest.raises(InvalidInput) as caught:
        _load({"port": "x"}, {"ROTA_WORKERS": "many"}, "concurrency = 'all'\ncolour = 1")
    fields = [fault.field for fault in caught.value.errors]
    assert sorted(fields) == ["--port", "ROTA_WORKERS", "rota.toml: colour", "rota.toml: concurrency"]


@pytest.mark.parametrize("document", ["port = ", "\ufffd = 1 1", "[server"])
def test_a_broken_file_is_named(document):
    with pytest.raises(InvalidInput, match=r"rota\.toml: is not TOML"):
        _load(document=document)


def test_a_file_that_was_asked_for_must_be_there(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        load_settings({}, {}, file=tmp_path / "none.toml")


def test_lists_and_tables_of_the_file():
    settings = _load(document='queues = ["a", "b"]\nserver = "one:1, https://two"\nlabels = {gpu = "yes"}')
    assert settings.queues == ("a", "b")
    assert settings.server == ("http://one:1", "https://two")
    assert settings.labels == {"gpu": "yes"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("30d", 2_592_000), ("2", 2), (" 2.5 ", 2.5), (7, 7)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m5", "-5m", "5m 3", "five", True, None, float("nan"), "1e3", [5]])
def test_what_is_no_duration(text):
    expected = 5.0 if text == "5" else None
    assert parse_duration(text) == expected


@pytest.mark.parametrize("seconds", [0.0, 0.5, 3.0, 60.0, 5400.0, 86_400.0, 30 * 86_400.0])
def test_a_written_duration_is_read_back(seconds):
    assert parse_duration(write_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("postgres://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql://u:p@h/d?sslmode=require", "postgresql+asyncpg://u:p@h/d?ssl=require"),
        (
            "postgresql://u:p@a:5432,b,[::1]:5434/d",
            "postgresql+asyncpg://u:p@/d?host=a,b,::1&port=5432,5432,5434&target_session_attrs=read-write",
        ),
        (
            "postgresql://u:p@a,b/d?target_session_attrs=primary",
            "postgresql+asyncpg://u:p@/d?target_session_attrs=primary&host=a,b&port=5432,5432",
        ),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db"),
    ],
)
def test_common_spellings_of_database_urls(given, url):
    assert choose_database_url(Settings(database_url=given)) == url


@pytest.mark.parametrize("given", ["mysql://u:secret@h/d", "rota.db", "redis://h", "postgresql://u:secret@a:x,b/d"])
def test_other_databases_are_refused(given):
    with pytest.raises(InvalidInput, match="database_url") as caught:
        choose_database_url(Settings(database_url=given))
    assert "secret" not in str(caught.value)


def test_the_file_of_a_database_url():
    assert find_database_file("sqlite+aiosqlite:////tmp/a.db?x=1") == Path("/tmp/a.db")
    assert find_database_file("sqlite+aiosqlite:///:memory:") is None
    assert find_database_file("postgresql+asyncpg://u:p@h/d") is None


def test_a_shown_database_url_has_no_password():
    assert hide_password("postgresql+asyncpg://rota:p%40ss@host:5432/d") == "postgresql://rota@host:5432/d"
    assert hide_password("sqlite+aiosqlite:////tmp/a.db") == "/tmp/a.db"


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False)]
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_every_setting_is_documented():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    missing = [name for info in list_settings() for name in (info.name, *info.variables) if f"`{name}`" not in page]
    assert not missing
    documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert documented == {info.name for info in list_settings()}
