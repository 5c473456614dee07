"""Kubernetes tasks against a stub of the API server, which checks the Jobs and plays their pods.

No cluster runs here: what is proved is what is asked of the API and what is made of its answers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from rota.domain.work import AttemptKey
from rota.worker.executors import kubernetes
from tests.worker.driver import make_assignment

JOB_FIELDS = {"backoffLimit", "ttlSecondsAfterFinished", "template", "activeDeadlineSeconds"}
CONTAINER_FIELDS = {"name", "image", "imagePullPolicy", "env", "command", "args", "workingDir", "resources"}
DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


class Cluster:
    """Jobs by name; how their pods behave is the test's to set."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.seen: list[dict[str, Any]] = []
        self.deletions: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.log = b""
        self.exit: dict[str, Any] = {"exitCode": 0, "reason": "Completed"}
        self.waiting: dict[str, Any] | None = None
        self.refusal: tuple[int, str] | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.following = asyncio.Event()
        self.polls = 0
        self.url = ""

    async def create(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization"))
        if self.refusal:
            return web.json_response({"kind": "Status", "message": self.refusal[1]}, status=self.refusal[0])
        job = await request.json()
        check_job(job)
        self.jobs[job["metadata"]["name"]] = job
        self.seen.append(job)
        return web.json_response(job, status=201)

    async def read(self, request: web.Request) -> web.Response:
        if request.match_info["name"] not in self.jobs:
            return web.json_response({"kind": "Status", "message": "not found"}, status=404)
        return web.json_response(self.jobs[request.match_info["name"]])

    async def delete(self, request: web.Request) -> web.Response:
        self.deletions.append(await request.json())
        if self.jobs.pop(request.match_info["name"], None) is None:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def list_pods(self, request: web.Request) -> web.Response:
        self.polls += 1
        job = request.query["labelSelector"].removeprefix("job-name=")
        # At first the pod is not there yet.
        if job not in self.jobs or self.polls == 1:
            return web.json_response({"items": []})
        return web.json_response({"items": [self.describe_pod(job, {"running": {}})]})

    async def read_pod(self, request: web.Request) -> web.Response:
        return web.json_response(self.describe_pod(request.match_info["name"], {"terminated": self.exit}))

    async def follow(self, request: web.Request) -> web.StreamResponse:
        assert (request.query["follow"], request.query["container"]) == ("true", "task")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(self.log)
        self.following.set()
        await self.goes_on.wait()
        return response

    def describe_pod(self, name: str, state: dict[str, Any]) -> dict[str, Any]:
        if self.waiting:
            state = {"waiting": self.waiting}
        return {"metadata": {"name": name}, "status": {"containerStatuses": [{"name": "task", "state": state}]}}


def check_job(job: dict[str, Any]) -> None:
    """What the published schema of batch/v1 Job asks for, as far as Rota uses it."""
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert DNS_NAME.fullmatch(job["metadata"]["name"])
    assert len(job["metadata"]["name"]) <= 63
    for name, value in job["metadata"]["labels"].items():
        assert LABEL_VALUE.fullmatch(value), (name, value)
    assert set(job["spec"]) <= JOB_FIELDS
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    for container in pod["containers"]:
        assert set(container) <= CONTAINER_FIELDS
        assert all(set(variable) == {"name", "value"} for variable in container["env"])
        assert all(isinstance(variable["value"], str) for variable in container["env"])


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(kubernetes, "POLL_SECONDS", 0.01)
    cluster = Cluster()
    application = web.Application()
    jobs, pods = "/apis/batch/v1/namespaces/batch/jobs", "/api/v1/namespaces/batch/pods"
    application.router.add_post(jobs, cluster.create)
    application.router.add_get(f"{jobs}/{{name}}", cluster.read)
    application.router.add_delete(f"{jobs}/{{name}}", cluster.delete)
    application.router.add_get(pods, cluster.list_pods)
    application.router.add_get(f"{pods}/{{name}}", cluster.read_pod)
    application.router.add_get(f"{pods}/{{name}}/log", cluster.follow)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    cluster.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield cluster
    await runner.cleanup()


@pytest.fixture
def start(source, start_worker, cluster, tmp_path):
    async def start(container: dict[str, Any] | None = None, **fields: Any) -> None:
        token = tmp_path / "token"
        token.write_text("secret\n")
        await start_worker(kubernetes_url=cluster.url, kubernetes_namespace="batch", kubernetes_token_file=str(token))
        spec = {"image": "busybox", **(container or {})}
        await source.offer(make_assignment(1, kind="container", container=spec, **fields))

    return start


async def test_a_job_per_attempt(source, start, cluster):
    cluster.log = b"working\n[1]\n"
    container = {"command": ["sh", "-c", "x"], "cpus": 0.5, "pull": "always"}
    await start(container, output="json", env={"A": 1}, limits={"memory_mb": 64}, working_directory="/w")
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.output, finished.exit_code) == ("success", [1], 0)
    assert source.log() == b"working\n[1]\n"
    described = cluster.seen[0]["spec"]["template"]["spec"]["containers"][0]
    assert described["args"] == ["sh", "-c", "x"]
    assert described["resources"] == {"limits": {"memory": "64Mi", "cpu": "0.5"}}
    assert described["imagePullPolicy"] == "Always"
    assert described["workingDir"] == "/w"
    assert {"name": "A", "value": "1"} in described["env"]
    assert {"name": "ROTA_IDEMPOTENCY_KEY", "value": "key-1"} in described["env"]
    assert cluster.seen[0]["spec"]["backoffLimit"] == 0
    assert cluster.tokens == {"Bearer secret"}
    assert cluster.jobs == {}


@pytest.mark.parametrize(
    ("ended", "error_type", "sentence"),
    [
        ({"exitCode": 3, "reason": "Error"}, "exit_code", "exit code 3"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "oom", "limits.memory_mb"),
    ],
)
async def test_failures_are_told_apart(source, start, cluster, ended, error_type, sentence):
    cluster.exit = ended
    await start(limits={"memory_mb": 64})
    finished = (await source.until_finished())[0]
    assert (finished.status, finished.error_type) == ("failed", error_type)
    assert sentence in finished.error
    assert cluster.jobs == {}


async def test_an_image_that_cannot_be_pulled(source, start, cluster):
    cluster.waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    await start()
    finished = (await source.until_finished())[0]
    assert (finished.error_type, finished.error) == ("bad_task", "container: ImagePullBackOff: no such image")
    assert cluster.jobs == {}


@pytest.mark.parametrize(("status", "error_type"), [(403, "bad_task"), (503, "connection_error")])
async def test_a_refusal_of_the_cluster(source, start, cluster, status, error_type):
    cluster.refusal = (status, "quota exceeded")
    await start()
    finished = (await source.until_finished())[0]
    assert (finished.error_type, finished.error) == (error_type, f"the cluster refuses ({status}): quota exceeded")


async def test_cancel_deletes_the_job_and_waits_until_it_is_gone(source, start, cluster):
    cluster.goes_on.clear()
    cluster.log = b"up\n"
    await start()
    await cluster.following.wait()
    source.cancel = {AttemptKey("task-run-1", 1)}
    source.order()
    finished = (await source.until_finished())[0]
    cluster.goes_on.set()
    assert (finished.status, finished.is_unconfirmed) == ("cancelled", False)
    assert cluster.deletions[0]["propagationPolicy"] == "Foreground"
    assert cluster.jobs == {}


async def test_timeout_ends_the_job(source, start, cluster):
    cluster.goes_on.clear()
    await start(timeout_seconds=0.1)
    finished = (await source.until_finished())[0]
    cluster.goes_on.set()
    assert (finished.status, finished.error_type) == ("failed", "timeout")
    assert cluster.seen[0]["spec"]["activeDeadlineSeconds"] == 300
    assert cluster.jobs == {}


async def test_a_cluster_that_is_away(source, start, cluster):
    cluster.url = "http://127.0.0.1:1"
    await start()
    finished = (await source.until_finished())[0]
    assert finished.error_type == "connection_error"
