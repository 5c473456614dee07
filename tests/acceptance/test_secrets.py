"""A secret on its way through real processes: a task gets it, and it is found nowhere else."""

from __future__ import annotations

import asyncio
import base64
import stat

from rota.store.database import Database, DatabaseOptions
from tests.store.contents import find_tables_with

VALUE = "m4rked-s3cret-value"
TASK = {
    "name": "a",
    "command": 'echo "shown: $TOKEN"; echo "again: $TOKEN" >&2; printf \'{"seen": "%s"}\\n\' "$TOKEN"',
    "env": {"TOKEN": "{{ secrets.TOKEN }}"},
    "output": "json",
}


def _find_tables(url: str) -> list[str]:
    async def find() -> list[str]:
        database = Database(DatabaseOptions(url))
        try:
            return await find_tables_with(database, VALUE)
        finally:
            await database.close()

    return asyncio.run(find())


def test_a_secret_is_nowhere_but_in_its_task(start, home, database_url):
    key = base64.b64encode(b"k" * 32).decode()
    server = start("--log-level", "debug", ROTA_SECRET_KEY=key)
    assert server.request("PUT", "/secrets/TOKEN", {"value": VALUE})[0] == 201
    server.define(TASK)
    found = server.wait_for_run(server.trigger())
    log = server.read_log(found["a"]["id"])
    assert log.count("***") == 3
    detail = server.get(f"/task-runs/{found['a']['id']}")
    assert detail["output"] == {"seen": "***"}
    assert VALUE not in log + str(detail) + str(server.get("/history"))
    assert server.terminate() == 0
    assert VALUE not in server.errors + server.output
    assert key not in server.errors + server.output
    assert _find_tables(database_url) == []


def test_a_single_node_makes_its_own_key(rota, start, home, database_url):
    server = start("--workers", "0")
    status, answer = server.request("PUT", "/secrets/TOKEN", {"value": VALUE})
    if not database_url.startswith("sqlite"):
        # Several nodes need the same one, so there it has to be given.
        assert (status, answer["code"]) == (409, "no_secret_key")
        return
    assert status == 201
    assert server.terminate() == 0
    (file,) = home.parent.glob("**/secret.key")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    again = start("--workers", "0")
    assert again.get("/secrets/TOKEN")["name"] == "TOKEN"
    assert file.read_bytes() == before
    address = ("--server", again.url)
    assert rota("secret", "put", "OTHER", *address, "--file", str(file)).returncode == 0
    assert "OTHER" in rota("secret", "list", *address).stdout
    assert rota("secret", "rotate", *address).returncode == 0
    assert rota("secret", "delete", "OTHER", *address).returncode == 0
    assert rota("secret", "delete", "OTHER", *address).returncode == 3


def test_a_wrong_key_stops_the_start_and_is_not_shown(rota, database_url):
    place = {"ROTA_DATABASE_URL": database_url, "ROTA_PORT": "0"}
    for wrong in ("not-a-key", "not-a-key\nnor-this"):
        done = rota("up", ROTA_SECRET_KEY=wrong, **place)
        assert done.returncode == 2
        assert "secret_key" in done.stderr.lower()
        assert "not-a-key" not in done.stderr
    done = rota("up", "--secret-key-file", "missing", **place)
    assert (done.returncode, "missing cannot be read" in done.stderr) == (2, True)
