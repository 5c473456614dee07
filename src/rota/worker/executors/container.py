"""Container tasks through a Docker-compatible socket (Docker or Podman): one container per attempt."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec
import structlog

from rota.domain.work import AttemptKey, ErrorType
from rota.worker import proc
from rota.worker.attempt import Attempt, cancel_task, name_attempt, read_variables, run_as_task
from rota.worker.exits import explain_exit
from rota.worker.launch import Ended
from rota.worker.logs import TailBuffer
from rota.worker.options import MAX_OUTPUT_BYTES, MEBIBYTE
from rota.worker.output import BadOutputError, read_output

log = structlog.get_logger(__name__)

API = "http://container/v1.41"
STREAMS = {1: "stdout", 2: "stderr"}
LOG_END_SECONDS = 10.0
LABEL_OWNER = "rota.owner"


class EngineError(Exception):
    """The container engine refused, with its own words and status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """The few calls that are needed of the engine's API."""

    def __init__(self, path: str) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )

    async def close(self) -> None:
        await self._session.close()

    def request(self, method: str, path: str, **fields: Any) -> Any:
        return self._session.request(method, f"{API}{path}", **fields)

    async def call(self, method: str, path: str, **fields: Any) -> Any:
        """One call; the decoded answer, or `EngineError`."""
        async with self.request(method, path, **fields) as response:
            body = await response.read()
            if response.status >= 400:
                raise EngineError(response.status, read_message(body))
            return msgspec.json.decode(body) if body and response.content_type == "application/json" else None

    async def pull(self, image: str) -> None:
        """Fetches an image. The engine answers 200 and says in the stream how it went."""
        async with self.request("POST", "/images/create", params={"fromImage": with_tag(image)}) as response:
            body = await response.read()
            if response.status >= 400:
                raise EngineError(response.status, read_message(body))
        for line in body.splitlines():
            if line.strip() and (problem := msgspec.json.decode(line).get("error")):
                raise EngineError(404, str(problem))


class ContainerExecutor:
    """Creates, follows, kills and removes containers; those of a worker that died are removed at the start."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path.removeprefix("unix://")
        self._incarnation = uuid.uuid4().hex
        self._engine: Engine | None = None
        # The names of containers that were started, by attempt, and what is stopping them.
        self._started: dict[AttemptKey, str] = {}
        self._stops: dict[AttemptKey, asyncio.Task[None]] = {}

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the container executor is not open")
        return self._engine

    async def open(self) -> None:
        self._engine = Engine(self._socket_path)
        try:
            await self._remove_orphans()
        except (EngineError, aiohttp.ClientError, OSError) as error:
            log.warning("container_engine_away", socket=self._socket_path, error=str(error))

    async def close(self) -> None:
        for task in self._stops.values():
            task.cancel()
        if self._engine is not None:
            await self._engine.close()

    def start(self, attempt: Attempt) -> None:
        run_as_task(attempt, self._run(attempt))

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        name = self._started.get(attempt.key)
        if name is None:
            cancel_task(attempt)
            return
        if (before := self._stops.pop(attempt.key, None)) is not None:
            before.cancel()
        self._stops[attempt.key] = asyncio.create_task(self._stop(name, grace_seconds))

    async def _stop(self, name: str, grace_seconds: float) -> None:
        """TERM, and KILL after the grace; that it is gone is seen by who waits for the container."""
        for signal_name, wait_seconds in (("SIGTERM", grace_seconds), ("SIGKILL", 0.0)):
            if signal_name == "SIGTERM" and grace_seconds <= 0:
                continue
            try:
                await self.engine.call("POST", f"/containers/{name}/kill", params={"signal": signal_name})
            except EngineError as error:
                log.info("container_kill_refused", container=name, signal=signal_name, error=str(error))
            await asyncio.sleep(wait_seconds)

    async def _run(self, attempt: Attempt) -> None:
        name = f"rota-{self._incarnation[:8]}-{attempt.key.task_run_id}-{attempt.key.attempt}"
        ended: Ended | None = None
        failure: tuple[ErrorType, str] | None = None
        captured = TailBuffer(MAX_OUTPUT_BYTES + 1)
        is_removed = False
        try:
            await self._create(attempt, name)
            ended = await self._execute(attempt, name, captured)
        except EngineError as error:
            is_absent = error.status == 404
            failure = (ErrorType.BAD_TASK, f"{'container.image: ' if is_absent else 'container: '}{error}")
        except (aiohttp.ClientError, OSError) as error:
            sentence = f"the container engine at {self._socket_path} cannot be reached: {error}"
            failure = (ErrorType.CONNECTION_ERROR, sentence)
        finally:
            self._started.pop(attempt.key, None)
            if (stop := self._stops.pop(attempt.key, None)) is not None:
                stop.cancel()
            is_removed = await asyncio.shield(self._remove(name))
        if failure is not None:
            attempt.fail(*failure)
        elif ended is not None:
            report_end(attempt, ended, captured, is_removed=is_removed)

    async def _create(self, attempt: Attempt, name: str) -> None:
        spec = attempt.assignment.spec
        image = str((spec.get("container") or {}).get("image") or "")
        policy = (spec.get("container") or {}).get("pull", "missing")
        body = describe_container(attempt, self._labels(attempt))
        if policy == "always":
            await self.engine.pull(image)
        try:
            await self.engine.call("POST", "/containers/create", params={"name": name}, json=body)
        except EngineError as error:
            if error.status != 404 or policy != "missing":
                raise
            attempt.log.write_line(f"[rota] pulling {image}")
            try:
                await self.engine.pull(image)
            except EngineError as failure:
                raise EngineError(404, f"{image} is not here and cannot be pulled: {failure}") from None
            await self.engine.call("POST", "/containers/create", params={"name": name}, json=body)

    async def _execute(self, attempt: Attempt, name: str, captured: TailBuffer) -> Ended:
        await self.engine.call("POST", f"/containers/{name}/start")
        self._started[attempt.key] = name
        if attempt.stop_reason is not None:
            self.stop(attempt, 0.0)
        following = asyncio.create_task(self._follow(attempt, name, captured))
        try:
            answer = await self.engine.call("POST", f"/containers/{name}/wait")
            await asyncio.wait([following], timeout=LOG_END_SECONDS)
        finally:
            following.cancel()
        state = (await self.engine.call("GET", f"/containers/{name}/json")).get("State", {})
        code = int(answer["StatusCode"])
        return Ended(0, exit_code=code, is_out_of_memory=bool(state.get("OOMKilled")))

    async def _follow(self, attempt: Attempt, name: str, captured: TailBuffer) -> None:
        """Copies the container's output."""
        params = {"follow": "1", "stdout": "1", "stderr": "1"}
        is_split = attempt.assignment.spec.get("output", "none") in ("json", "text")
        async with self.engine.request("GET", f"/containers/{name}/logs", params=params) as response:
            async for stream, data in read_frames(response.content):
                if stream == "stdout":
                    captured.write(data)
                attempt.write(data, stream if is_split else "output")

    async def _remove(self, name: str) -> bool:
        """Removes the container with everything in it; True when there is none of that name any more."""
        try:
            await self.engine.call("DELETE", f"/containers/{name}", params={"force": "1", "v": "1"})
        except EngineError as error:
            return error.status == 404
        except (aiohttp.ClientError, OSError):
            return False
        return True

    def _labels(self, attempt: Attempt) -> dict[str, str]:
        return {
            LABEL_OWNER: name_owner(),
            "rota.incarnation": self._incarnation,
            "rota.task_run_id": attempt.key.task_run_id,
            "rota.attempt": str(attempt.key.attempt),
        }

    async def _remove_orphans(self) -> None:
        """Removes what a worker process of this machine has left behind that does not live any more."""
        filters = msgspec.json.encode({"label": [LABEL_OWNER]}).decode()
        for container in await self.engine.call("GET", "/containers/json", params={"all": "1", "filters": filters}):
            owner = container.get("Labels", {}).get(LABEL_OWNER, "")
            if is_dead(owner):
                log.warning("orphan_container_removed", container=container["Id"][:12], owner=owner)
                await self._remove(container["Id"])


async def read_frames(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Stream and bytes of each frame: a header of eight bytes (stream, length), then the content."""
    try:
        while True:
            header = await content.readexactly(8)
            left = int.from_bytes(header[4:], "big")
            while left and (data := await content.read(min(left, 65536))):
                left -= len(data)
                yield STREAMS.get(header[0], "output"), data
    except (asyncio.IncompleteReadError, aiohttp.ClientError):
        # The container has ended, or the engine has: who waits for the container finds out which.
        return


def name_owner() -> str:
    """This process on this machine, told apart from a later one with the same number."""
    stat = proc.read_stat(os.getpid())
    return f"{socket.gethostname()}/{os.getpid()}/{stat[2] if stat else 0}"


def is_dead(owner: str) -> bool:
    """Whether the owner is a process of this machine that has ended."""
    host, _, rest = owner.partition("/")
    pid, _, started = rest.partition("/")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    stat = proc.read_stat(int(pid))
    return stat is None or str(stat[2]) != started


def describe_container(attempt: Attempt, labels: Mapping[str, str]) -> dict[str, Any]:
    """The engine's description of the attempt's container."""
    assignment = attempt.assignment
    container = assignment.spec.get("container") or {}
    limits = attempt.limits
    ulimits = [
        {"Name": name, "Soft": int(limits[limit]), "Hard": int(limits[limit]) + extra}
        for limit, name, extra in (("cpu_seconds", "cpu", 1), ("open_files", "nofile", 0))
        if limits.get(limit)
    ]
    memory = int(limits.get("memory_mb", 0) * MEBIBYTE)
    environment = name_attempt(assignment) | read_variables(assignment)
    return {
        "Image": str(container.get("image") or ""),
        "Cmd": split_command(container.get("command")),
        "Entrypoint": split_command(container.get("entrypoint")),
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": dict(labels),
        "User": str(container.get("user") or ""),
        "WorkingDir": str(assignment.spec.get("working_directory") or ""),
        "HostConfig": {
            "Binds": list(container.get("mounts") or ()),
            "Memory": memory,
            "MemorySwap": memory,
            "NanoCpus": int(float(container.get("cpus") or 0) * 1e9),
            "Ulimits": ulimits,
            **({"NetworkMode": str(container["network"])} if container.get("network") else {}),
        },
    }


def split_command(command: Any) -> list[str] | None:
    """A string is for the image's shell; a list is executed as it stands; nothing leaves it to the image."""
    if not command:
        return None
    return ["/bin/sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]


def report_end(attempt: Attempt, ended: Ended, captured: TailBuffer, *, is_removed: bool) -> None:
    """Says how a container has ended, once it is gone."""
    if attempt.stop_reason is not None:
        attempt.end_stopped(exit_code=ended.exit_code, is_unconfirmed=not is_removed)
    elif ended.exit_code == 0:
        try:
            output = read_output(attempt.assignment.spec.get("output", "none"), captured)
        except BadOutputError as error:
            attempt.fail(ErrorType.BAD_OUTPUT, str(error), exit_code=0)
        else:
            attempt.succeed(output, exit_code=0)
    else:
        error_type, sentence = explain_exit(ended, attempt.limits)
        attempt.fail(error_type, sentence, exit_code=ended.exit_code)


def with_tag(image: str) -> str:
    return image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"


def read_message(body: bytes) -> str:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:500].decode(errors="replace").strip()
    return str(decoded.get("message", decoded)) if isinstance(decoded, dict) else str(decoded)
