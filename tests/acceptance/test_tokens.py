"""Keys, tokens and cookies are found in no log, no answer and no table, whatever is asked with them."""

from __future__ import annotations

import asyncio
import re

from rota.store.database import Database, DatabaseOptions
from tests.acceptance.processes import wait_until
from tests.store.contents import find_tables_with


def _find_tables(url: str, *words: str) -> list[str]:
    async def find() -> list[str]:
        database = Database(DatabaseOptions(url))
        try:
            return await find_tables_with(database, *words)
        finally:
            await database.close()

    return asyncio.run(find())


def test_what_opens_doors_is_written_nowhere(start, rota, database_url):
    made = rota("key", "create", "root", "--role", "admin", "--local", ROTA_DATABASE_URL=database_url)
    key = made.stdout.strip()
    server = start("--log-level", "debug", ROTA_TOKEN="m4rked-shared-token")
    shown: list[object] = []

    def ask(method, path, body=None, **headers):
        status, answer = server.request(method, path, body, **headers)
        shown.append(answer)
        return status, answer

    wrong = "rota_" + "m4rkedwrong" * 4
    for bearer in (key, "m4rked-shared-token", wrong):
        with_key = {"Authorization": f"Bearer {bearer}"}
        for method, path, body in (
            ("POST", "/workflows", {"name": f"flow-{bearer[-5:]}", "tasks": [{"name": "a", "command": "env; false"}]}),
            ("POST", f"/workflows/flow-{bearer[-5:]}/trigger", {}),
            ("POST", "/jobs", {"command": 5}),
            ("POST", "/jobs", {"command": "env"}),
            ("POST", "/workers/register", {"hostname": "x"}),
            ("GET", "/audit", None),
            ("GET", "/api-keys", None),
            ("GET", "/history", None),
            ("DELETE", "/nothing/here", None),
        ):
            ask(method, path, body, **with_key)
    status, session = server.request("POST", "/session", {"key": key})
    assert status == 201
    with_key = {"Authorization": f"Bearer {key}"}
    assert server.request("POST", "/ws-tickets", {}, **with_key)[0] == 201
    second = server.request("POST", "/api-keys", {"name": "ci"}, **with_key)[1]["key"]

    def list_ended():
        runs = ask("GET", "/workflow-runs", **with_key)[1]["items"]
        return runs if runs and all(run["finished_at"] for run in runs) else None

    for run in wait_until(list_ended, "the runs to end"):
        for task_run in ask("GET", f"/workflow-runs/{run['id']}", **with_key)[1]["task_runs"]:
            ask("GET", f"/task-runs/{task_run['id']}", **with_key)
    hidden = (key, second, "m4rked-shared-token", wrong, session["csrf_token"])
    assert server.terminate() == 0
    text = server.errors + server.output + str(shown)
    assert [word for word in hidden if word in text] == []
    assert re.search(r"m4rked", text) is None
    assert _find_tables(database_url, *hidden) == []
