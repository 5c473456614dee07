"""Starts that cannot go well: a clear error, the right exit code, and no data touched."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import socket

import pytest
from sqlalchemy import text

from rota.store.database import Database, DatabaseOptions
from tests.acceptance.processes import Server, wait_until

UNAVAILABLE = 4
USAGE = 2


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _execute(url, statement):
    async def run():
        database = Database(DatabaseOptions(url))
        await database.transact(lambda transaction: transaction.run(text(statement)))
        await database.close()

    asyncio.run(run())


def _assert_refused(done, *words, code=UNAVAILABLE):
    assert done.returncode == code, done
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert re.search(word, done.stderr), done.stderr


@pytest.mark.parametrize("command", ["api", "scheduler", "node"])
def test_parts_refuse_a_database_that_is_not_up_to_date(rota, empty_database_url, command):
    done = rota(command, ROTA_DATABASE_URL=empty_database_url, ROTA_PORT="0", ROTA_METRICS_PORT="0")
    _assert_refused(done, "rota db upgrade")


def test_the_command_that_is_named_helps(rota, empty_database_url):
    place = {"ROTA_DATABASE_URL": empty_database_url}
    assert rota("db", "check", **place).returncode == UNAVAILABLE
    assert rota("db", "upgrade", **place).returncode == 0
    assert "up to date" in rota("db", "check", **place).stdout
    assert rota("db", "downgrade", "base", "--yes", **place).returncode == 0
    assert '"current": null' in rota("db", "current", "--json", **place).stdout


@pytest.mark.parametrize("command", ["up", "api"])
def test_a_database_of_a_newer_version_is_left_alone(rota, database_url, command):
    _execute(database_url, "UPDATE alembic_version SET version_num = '9999'")
    done = rota(command, ROTA_DATABASE_URL=database_url, ROTA_PORT="0")
    _assert_refused(done, "9999", "newer", "rota db downgrade")
    assert '"current": "9999"' in rota("db", "current", "--json", ROTA_DATABASE_URL=database_url).stdout


def test_a_database_that_cannot_be_reached(rota):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        url = f"postgresql://rota:secret@127.0.0.1:{port}/rota"
        done = rota("up", ROTA_DATABASE_URL=url, ROTA_PORT="0")
    _assert_refused(done, "cannot be reached")
    assert "secret" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    "content", [b"this is not a database", b"SQLite format 3\x00" + b"\xff" * 5000], ids=["text", "torn"]
)
def test_a_damaged_file_is_left_alone(rota, home, content):
    data = home / "data"
    data.mkdir()
    file = data / "rota.db"
    file.write_bytes(content)
    done = rota("up", "--data-dir", str(data), ROTA_PORT="0")
    _assert_refused(done, re.escape(str(file)), "damaged or not a SQLite database")
    assert file.read_bytes() == content


def test_a_read_only_file_is_left_alone(rota, home, sqlite_template):
    # Root may write anything, unless it gives that right up.
    prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    if prefix and shutil.which(prefix[0]) is None:
        pytest.fail("setpriv (of util-linux) is missing")
    data = home / "data"
    shutil.copytree(sqlite_template, data)
    file = data / "rota.db"
    before = _digest(file)
    file.chmod(0o400)
    try:
        done = rota("up", "--data-dir", str(data), prefix=prefix, ROTA_PORT="0")
        _assert_refused(done, re.escape(str(file)), "read-only")
        data.chmod(0o500)
        done = rota("up", "--data-dir", str(data), prefix=prefix, ROTA_PORT="0")
        _assert_refused(done, re.escape(str(data)), "Permission denied|read-only")
    finally:
        data.chmod(0o700)
    assert _digest(file) == before


def test_a_data_folder_that_is_a_file(rota, home):
    (home / "data").write_text("mine")
    done = rota("up", "--data-dir", "data", ROTA_PORT="0")
    _assert_refused(done, "cannot be used for data", "--data-dir")
    assert (home / "data").read_text() == "mine"


def test_a_second_process_on_one_file(rota, home, sqlite_template, started):
    from_here = home / "data"
    shutil.copytree(sqlite_template, from_here)
    first = Server(home, "", "--data-dir", str(from_here))
    started.append(first)
    for command in (("up",), ("api",), ("db", "upgrade")):
        done = rota(*command, "--data-dir", str(from_here), ROTA_PORT="0")
        _assert_refused(done, "in use by another Rota", f"process {first.popen.pid}", "--data-dir")
    assert first.get("/health")["status"] == "healthy"
    first.kill()
    second = Server(home, "", "--data-dir", str(from_here))
    started.append(second)
    assert second.get("/health")["status"] == "healthy"


def test_a_port_in_use(rota):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = rota("up", "--port", str(port))
    _assert_refused(done, f"port {port} on 127.0.0.1 is in use", "--port")


def test_an_open_door_needs_a_key(rota):
    words = ("rota key create", "ROTA_TOKEN", "127.0.0.1")
    _assert_refused(rota("up", "--host", "0.0.0.0", "--port", "0"), *words, code=USAGE)
    # One that cannot make others is not enough.
    assert rota("key", "create", "looks", "--local").returncode == 0
    _assert_refused(rota("up", "--host", "0.0.0.0", "--port", "0"), *words, code=USAGE)


def test_the_first_key_is_made_without_a_server(start, rota, database_url):
    place = {"ROTA_DATABASE_URL": database_url}
    made = rota("key", "create", "root", "--role", "admin", "--local", **place)
    assert made.returncode == 0
    key = made.stdout.strip()
    assert re.fullmatch(r"rota_[\w-]{43}", key)
    server = start("--workers", "0", "--host", "0.0.0.0")
    address = {"ROTA_SERVER": server.url, "ROTA_TOKEN": key}
    assert rota("runs", "list", ROTA_SERVER=server.url).returncode == 6
    assert rota("runs", "list", **address).returncode == 0
    second = rota("key", "create", "ci", "--role", "operator", "--namespace", "default", "--expires", "90d", **address)
    assert second.returncode == 0
    listed = rota("key", "list", **address).stdout
    assert re.search(r"ci +rota_\S{7} +operator +default +active", listed)
    assert key not in listed
    assert second.stdout.strip() not in listed
    assert rota("key", "revoke", "ci", **address).returncode == 0
    assert rota("key", "revoke", "ci", **address).returncode == 3
    assert rota("key", "revoke", "root", **address).returncode == 5
    assert "revoked" in rota("key", "list", "--revoked", **address).stdout
    assert key not in server.errors + server.output


def test_a_key_is_asked_for(start, start_worker, rota):
    server = start("--workers", "0", ROTA_TOKEN="let-me-in")
    for path in ("/workflows", "/api/v1/jobs", "/metrics", "/openapi.json"):
        status, problem = server.request("GET", path)
        assert (status, problem["code"]) == (401, "unauthenticated")
    key = {"Authorization": "Bearer let-me-in"}
    assert server.request("GET", "/workflows", **key)[0] == 200
    assert server.request("GET", "/workflows", Authorization="Bearer let-me-out")[0] == 401
    assert server.request("GET", "/healthz")[0] == 200
    address = ("--server", server.url)
    assert rota("runs", "list", *address).returncode == 6
    assert rota("runs", "list", *address, ROTA_TOKEN="let-me-in").returncode == 0
    start_worker(server, "--token", "let-me-in", "--worker-id", "known")
    wait_until(
        lambda: [row["name"] for row in server.request("GET", "/workers", **key)[1]["items"]] == ["known"],
        "the worker with the key",
    )


def test_a_wrong_setting_stops_the_start(rota):
    done = rota("up", "--concurrency", "0", ROTA_PORT="99999", ROTA_LOG_LEVEL="loud")
    _assert_refused(done, "--concurrency: '0'", "ROTA_PORT: '99999'", "ROTA_LOG_LEVEL: 'loud'", code=USAGE)
