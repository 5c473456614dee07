"""Container tasks against a real Podman service, with an image made from nothing but busybox."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from rota.domain.work import AttemptKey
from rota.worker.executors.container import LABEL_OWNER, Engine
from tests.servers.podman import IMAGE, open_podman
from tests.worker.driver import make_assignment


@pytest.fixture(scope="module")
def podman_socket() -> Iterator[str]:
    """A Podman service of the tests' own, with the image loaded."""
    with open_podman() as path:
        yield path


@pytest.fixture
async def engine(podman_socket: str) -> AsyncIterator[Engine]:
    engine = Engine(podman_socket)
    async with asyncio.timeout(60):
        while True:
            try:
                await engine.call("GET", "/version")
                break
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)
    yield engine
    await engine.close()


@pytest.fixture
def run(source, start_worker, podman_socket, engine):
    async def run(command: Any, *, image: str = IMAGE, container: dict[str, Any] | None = None, **fields: Any):
        await start_worker(container_socket=podman_socket)
        spec = {"image": image, "command": command, "network": "none", "pull": "never", **(container or {})}
        await source.offer(make_assignment(1, kind="container", container=spec, **fields))
        return (await source.until_finished())[0]

    return run


async def list_containers(engine: Engine) -> list[dict[str, Any]]:
    return list(await engine.call("GET", "/containers/json", params={"all": "1"}))


async def test_output_environment_and_log(run, source, engine):
    finished = await run("echo $GREETING $ROTA_TASK; echo warn >&2; echo '[1]'", env={"GREETING": "hi"}, output="json")
    assert (finished.status, finished.exit_code, finished.output) == ("success", 0, [1])
    assert {chunk.stream: chunk.data for chunk in source.chunks()} == {
        "stdout": b"hi step\n[1]\n",
        "stderr": b"warn\n",
    }
    assert await list_containers(engine) == []


@pytest.mark.parametrize(
    ("command", "image", "error_type", "sentence"),
    [
        ("exit 3", IMAGE, "exit_code", "exit code 3"),
        (["/no/such"], IMAGE, "bad_task", "no such file"),
        ("true", "localhost/no-such-image:latest", "bad_task", "container.image: "),
    ],
)
async def test_failures_are_told_apart(run, engine, command, image, error_type, sentence):
    finished = await run(command, image=image)
    assert (finished.status, finished.error_type) == ("failed", error_type)
    assert sentence in finished.error.lower()
    assert await list_containers(engine) == []


async def test_a_missing_image_that_cannot_be_pulled(run):
    finished = await run("true", image="127.0.0.1:1/nothing:latest", container={"pull": "missing"})
    assert (finished.status, finished.error_type) == ("failed", "bad_task")
    assert "127.0.0.1:1/nothing:latest is not here and cannot be pulled" in finished.error


async def test_cancel_kills_the_container(source, start_worker, podman_socket, engine):
    await start_worker(container_socket=podman_socket, grace_seconds=0.2)
    spec = {"image": IMAGE, "command": "trap '' TERM; echo up; sleep 600 & sleep 600", "network": "none"}
    await source.offer(make_assignment(1, kind="container", container=spec))
    await source.until(lambda: source.log() == b"up\n")
    labels = (await list_containers(engine))[0]["Labels"]
    assert (labels["rota.task_run_id"], labels["rota.attempt"]) == ("task-run-1", "1")
    source.cancel = {AttemptKey("task-run-1", 1)}
    source.order()
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.is_unconfirmed) == ("cancelled", False)
    assert await list_containers(engine) == []


async def test_containers_of_a_dead_worker_are_removed_at_the_start(start_worker, podman_socket, engine):
    host = {"NetworkMode": "none"}
    names = {"orphan": f"{socket.gethostname()}/999999999/1", "foreign": "another-machine/1/1"}
    for name, owner in names.items():
        body = {"Image": IMAGE, "Cmd": ["sleep", "600"], "Labels": {LABEL_OWNER: owner}, "HostConfig": host}
        await engine.call("POST", "/containers/create", params={"name": name}, json=body)
        await engine.call("POST", f"/containers/{name}/start")
    await start_worker(container_socket=podman_socket)
    left = [container["Names"][0].lstrip("/") for container in await list_containers(engine)]
    await engine.call("DELETE", "/containers/foreign", params={"force": "1"})
    assert left == ["foreign"]


async def test_an_engine_that_is_away(source, start_worker, tmp_path):
    await start_worker(container_socket=str(tmp_path / "nothing"))
    await source.offer(make_assignment(1, kind="container", container={"image": IMAGE}))
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.error_type) == ("failed", "connection_error")
    assert "cannot be reached" in finished.error
