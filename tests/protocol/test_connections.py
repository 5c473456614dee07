"""Connections that break, servers that are away, and the worker that is nothing but a shell."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.api.app import close_polls
from rota.domain.errors import InvalidInput, RotaError, Unauthenticated, Unavailable
from rota.domain.work import AttemptKey, Registration, WorkerIdentity
from rota.store.reads.pages import PageRequest
from rota.store.reads.workers import list_workers
from rota.worker.options import WorkerOptions
from rota.worker.remote import RemoteSource
from rota.worker.service import Worker
from tests.api.server import Server

WORKER = Path(__file__).resolve().parents[2] / "examples" / "worker.sh"


class Doubts:
    """Counts the doubts of an engine, which it still has."""

    def __init__(self, server: Server) -> None:
        self.workers: list[str] = []
        self.event = asyncio.Event()
        self._doubt = server.engine.doubt
        server.engine.doubt = self._note  # type: ignore[method-assign]

    async def _note(self, worker: WorkerIdentity) -> None:
        await self._doubt(worker)
        self.workers.append(worker.worker_id)
        self.event.set()


@pytest.fixture
async def doubts(server: Server) -> Doubts:
    return Doubts(server)


async def open_line(server: Server, worker: WorkerIdentity) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A heartbeat that waits for orders, over a connection that can be cut."""
    polls = server.app.state.api.polls
    before = polls.count_lines(worker.incarnation)
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"worker_id": "%b", "wait": 60}' % worker.worker_id.encode()
    head = f"POST /workers/heartbeat HTTP/1.1\r\nHost: {host}\r\nX-Rota-Incarnation: {worker.incarnation}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    await wait_until(lambda: polls.count_lines(worker.incarnation) > before)
    return reader, writer


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


async def read_lease(server: Server) -> float:
    """Seconds from the last heartbeat to the end of the lease of the only worker."""
    rows = await server.database.read(read_lease_rows)
    return (rows[0].lease_expires_at - rows[0].last_heartbeat).total_seconds()


async def read_lease_rows(transaction: Any) -> Any:
    return (await list_workers(transaction, ["active"], PageRequest())).rows


async def test_a_broken_line_raises_doubt(server: Server, doubts: Doubts):
    await server.define({"name": "a"})
    await server.trigger()
    worker = await server.join()
    await server.take()
    _reader, writer = await open_line(server, worker)
    assert await read_lease(server) == 30
    writer.transport.abort()
    async with asyncio.timeout(10):
        await doubts.event.wait()
    assert doubts.workers == [worker.worker_id]
    # Not the 30 seconds of the lease, but the few of the doubt.
    assert await read_lease(server) < 10
    await server.engine.renew(worker, [])
    assert await read_lease(server) == 30


async def test_a_line_that_ends_in_good_order_raises_none(server: Server, doubts: Doubts):
    worker = await server.join()
    async with RemoteSource([server.url]) as source:
        assert await source.wait_for_orders(worker, wait_seconds=0.05) is False
        assert await source.claim(worker, limit=1, wait_seconds=0.05) == ()
    _reader, first = await open_line(server, worker)
    second = await open_line(server, worker)
    # One of two lines may break: the worker has come back by the other one.
    first.transport.abort()
    await wait_until(lambda: server.app.state.api.polls.count_lines(worker.incarnation) == 1)
    close_polls(server.app)
    answer = await asyncio.wait_for(second[0].readuntil(b"\r\n"), 10)
    assert b"200" in answer
    second[1].close()
    assert doubts.workers == []


async def test_a_poll_for_work_that_is_given_up_raises_none(server: Server, doubts: Doubts):
    await server.define({"name": "a"})
    worker = await server.join()
    async with RemoteSource([server.url]) as source:
        polling = asyncio.create_task(source.claim(worker, limit=1, wait_seconds=30))
        await asyncio.wait({polling}, timeout=0.3)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await server.get("/healthz")
        await server.trigger()
        # The poll is gone, so what comes now is left for the next one.
        assert [item.task for item in await source.claim(worker, limit=1, wait_seconds=10)] == ["a"]
    assert doubts.workers == []


async def test_a_line_that_breaks_is_heard_as_an_order(server: Server):
    worker = await server.join()
    async with pretend_server(b"") as broken, RemoteSource([broken, server.url]) as source:
        # Whoever lost the line renews at once, and finds the server that answers.
        assert await source.wait_for_orders(worker, wait_seconds=5) is True
        assert (await source.renew(worker, [])).is_draining is False


@asynccontextmanager
async def pretend_server(answer: bytes) -> AsyncIterator[str]:
    """Something at an address that is no Rota server: it says this to everybody, and hangs up."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(answer)
        writer.close()

    listener = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops"
NO_PROTOCOL = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>"


async def test_the_next_server_is_asked(server: Server):
    nobody = f"http://127.0.0.1:{free_port()}"
    async with pretend_server(BAD_GATEWAY) as bad, RemoteSource([nobody, bad, server.url + "/"]) as source:
        registered = await source.register(Registration(name="one"))
        assert (await source.renew(registered.identity, [])).lost == ()


async def test_nobody_answers():
    async with pretend_server(BAD_GATEWAY) as bad, pretend_server(NO_PROTOCOL) as wrong:
        for urls, words in (
            ([f"http://127.0.0.1:{free_port()}"], "cannot be reached"),
            ([bad], "answered 502"),
            ([wrong], "not Rota's protocol"),
        ):
            async with RemoteSource(urls) as source:
                with pytest.raises(Unavailable, match=words):
                    await source.register(Registration(name="one"))
    with pytest.raises(InvalidInput):
        RemoteSource([])


async def test_refusals_keep_their_reasons(server: Server):
    async with RemoteSource([server.url]) as source:
        with pytest.raises(InvalidInput) as refused:
            await source.register(Registration(concurrency=0))
        assert [fault.field for fault in refused.value.errors] == ["concurrency"]
        with pytest.raises(Unauthenticated) as unknown:
            await source.claim(WorkerIdentity("x", "y"), limit=1, wait_seconds=0)
        assert unknown.value.code == "unknown_worker"


async def test_the_key_is_sent(server: Server):
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with RemoteSource([url], "rota_key") as source:
            with pytest.raises(RotaError, match="403"):
                await source.renew(WorkerIdentity("one", "two"), [AttemptKey("x", 1)])
    assert b"Authorization: Bearer rota_key" in heard[0]
    assert b"X-Rota-Incarnation: two" in heard[0]


async def test_the_bundled_worker_over_http(server: Server):
    await server.define(
        {"name": "a", "command": "echo made by $ROTA_TASK"}, {"name": "b", "command": "exit 3", "depends_on": ["a"]}
    )
    async with RemoteSource([server.url]) as source:
        worker = Worker(source, WorkerOptions(name="far", concurrency=2, kinds=("shell",)))
        running = asyncio.create_task(worker.run())
        run = await server.trigger()
        found = await wait_for_end(server, run["id"])
        worker.stop()
        await asyncio.wait_for(running, 20)
    rows = {row["task"]: row for row in found["task_runs"]}
    assert (found["status"], rows["b"]["exit_code"], rows["b"]["error_type"]) == ("failed", 3, "exit_code")
    assert (await server.get(f"/task-runs/{rows['a']['id']}"))["logs"] == "made by a\n"
    assert (await server.get("/workers"))["items"] == []


async def wait_for_end(server: Server, run_id: str) -> Any:
    """The run once it is over."""
    async with asyncio.timeout(60):
        while True:
            found = await server.get(f"/workflow-runs/{run_id}")
            if found["finished_at"]:
                return found
            await asyncio.sleep(0.05)


async def test_the_worker_that_is_a_shell_script(server: Server, tmp_path: Path):
    await server.define(
        {"name": "a", "command": 'echo "$WHO\'s $(pwd)"; echo problem >&2', "env": {"WHO": "it"}},
        {"name": "b", "command": ["printf", "%s|", "a b", "'"], "depends_on": ["a"]},
        {"name": "c", "command": "exit 7", "depends_on": ["b"], "working_directory": str(tmp_path)},
        {"name": "d", "command": "sleep 60", "timeout_seconds": 0.2},
    )
    run = await server.trigger()
    process = await asyncio.create_subprocess_exec(
        "sh", str(WORKER), server.url, start_new_session=True, cwd=tmp_path, stderr=asyncio.subprocess.PIPE
    )
    try:
        found = await wait_for_end(server, run["id"])
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        _output, errors = await process.communicate()
    rows = {row["task"]: row for row in found["task_runs"]}
    codes = {name: (row["status"], row["exit_code"]) for name, row in rows.items()}
    assert codes == {"a": ("success", 0), "b": ("success", 0), "c": ("failed", 7), "d": ("failed", 124)}, errors
    logs = [(await server.get(f"/task-runs/{rows[name]['id']}"))["logs"] for name in ("a", "b")]
    assert logs == [f"it's {tmp_path}\nproblem\n", "a b|'|"]
    assert len(WORKER.read_text().splitlines()) <= 20
