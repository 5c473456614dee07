"""Container tasks in a Kubernetes cluster: one Job per attempt, its pod's log, its deletion on cancel."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import aiohttp
import structlog

from rota.domain.work import AttemptKey, ErrorType
from rota.outbound.pod import make_tls, read_authorization
from rota.worker.attempt import Attempt, cancel_task, name_attempt, read_variables, run_as_task
from rota.worker.executors.container import report_end, split_command
from rota.worker.launch import Ended
from rota.worker.logs import TailBuffer
from rota.worker.options import MAX_OUTPUT_BYTES, WorkerOptions

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.5
GONE_PATIENCE_SECONDS = 60.0
# The cluster removes what a worker that died could not: this long after the end of the Job.
LEFTOVER_SECONDS = 300
CONTAINER = "task"
# Reasons for which a container waits in vain.
HOPELESS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
    | {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
PULL_POLICIES = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}


class ApiError(Exception):
    """The API server refused, with its status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CannotStartError(Exception):
    """The pod will not start; the message is the cluster's."""


class KubernetesExecutor:
    """Creates Jobs and follows them."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._session: aiohttp.ClientSession | None = None
        self._grace_seconds: dict[AttemptKey, float] = {}

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the kubernetes executor is not open")
        return self._session

    async def open(self) -> None:
        tls = make_tls(self._options.kubernetes_ca_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def start(self, attempt: Attempt) -> None:
        run_as_task(attempt, self._run(attempt))

    def stop(self, attempt: Attempt, grace_seconds: float) -> None:
        """The deletion of the Job brings TERM, grace and KILL, all by the cluster."""
        if attempt.key not in self._grace_seconds:
            self._grace_seconds[attempt.key] = grace_seconds
            cancel_task(attempt)

    async def _run(self, attempt: Attempt) -> None:
        name = name_job(attempt.key)
        captured = TailBuffer(MAX_OUTPUT_BYTES + 1)
        ended: Ended | None = None
        failure: tuple[ErrorType, str] | None = None
        is_gone = False
        try:
            await self._call("POST", self._jobs, json=describe_job(attempt, name))
            pod = await self._wait_for_pod(name)
            await self._follow(attempt, pod, captured)
            ended = await self._wait_for_end(pod)
        except CannotStartError as error:
            failure = (ErrorType.BAD_TASK, f"container: {error}")
        except ApiError as error:
            error_type = ErrorType.BAD_TASK if error.status < 500 else ErrorType.CONNECTION_ERROR
            failure = (error_type, f"the cluster refuses ({error.status}): {error}")
        except (aiohttp.ClientError, OSError) as error:
            failure = (ErrorType.CONNECTION_ERROR, f"the cluster cannot be reached: {error}")
        except asyncio.CancelledError:
            ended = Ended(0)
        finally:
            is_gone = await asyncio.shield(self._delete(name, self._grace_seconds.pop(attempt.key, 0.0)))
        if failure is not None:
            attempt.fail(*failure)
        elif ended is not None:
            report_end(attempt, ended, captured, is_removed=is_gone)

    # -- the life of a Job --------------------------------------------------------------------------------

    async def _wait_for_pod(self, job: str) -> str:
        """The name of the Job's pod, once its container runs or has run."""
        while True:
            found = await self._call("GET", self._pods, params={"labelSelector": f"job-name={job}"})
            for pod in found.get("items", ()):
                if has_begun(pod):
                    return str(pod["metadata"]["name"])
            await asyncio.sleep(POLL_SECONDS)

    async def _follow(self, attempt: Attempt, pod: str, captured: TailBuffer) -> None:
        params = {"follow": "true", "container": CONTAINER}
        url = f"{self._pods}/{pod}/log"
        async with self.session.get(
            url, params=params, headers=read_authorization(self._options.kubernetes_token_file)
        ) as response:
            if response.status >= 400:
                attempt.log.write_line(f"[rota] the cluster gives no log: {response.status}")
                return
            async for data in response.content.iter_any():
                captured.write(data)
                attempt.write(data)

    async def _wait_for_end(self, pod: str) -> Ended:
        while True:
            state = read_state(await self._call("GET", f"{self._pods}/{pod}"))
            if "terminated" in state:
                terminated = state["terminated"]
                is_out_of_memory = terminated.get("reason") == "OOMKilled"
                return Ended(0, exit_code=int(terminated["exitCode"]), is_out_of_memory=is_out_of_memory)
            await asyncio.sleep(POLL_SECONDS)

    async def _delete(self, job: str, grace_seconds: float) -> bool:
        """Deletes the Job with its pod; True once the cluster says that both are gone."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "gracePeriodSeconds": int(grace_seconds),
        }
        try:
            async with asyncio.timeout(grace_seconds + GONE_PATIENCE_SECONDS):
                await self._call("DELETE", f"{self._jobs}/{job}", json=body)
                while True:
                    await self._call("GET", f"{self._jobs}/{job}")
                    await asyncio.sleep(POLL_SECONDS)
        except ApiError as error:
            return error.status == 404
        except (aiohttp.ClientError, OSError) as error:
            log.warning("job_not_deleted", job=job, error=str(error))
            return False

    async def _call(self, method: str, url: str, **fields: Any) -> Any:
        async with self.session.request(
            method, url, headers=read_authorization(self._options.kubernetes_token_file), **fields
        ) as response:
            answer = await response.json(content_type=None)
            if response.status >= 400:
                message = answer.get("message") if isinstance(answer, dict) else None
                raise ApiError(response.status, str(message or response.reason))
            return answer

    @property
    def _jobs(self) -> str:
        return f"{self._base('/apis/batch/v1')}/jobs"

    @property
    def _pods(self) -> str:
        return f"{self._base('/api/v1')}/pods"

    def _base(self, group: str) -> str:
        options = self._options
        return f"{options.kubernetes_url.rstrip('/')}{group}/namespaces/{options.kubernetes_namespace}"


def name_job(key: AttemptKey) -> str:
    """A name that the cluster accepts, the same for the same attempt, so that it cannot run twice."""
    digest = hashlib.sha256(f"{key.task_run_id}/{key.attempt}".encode()).hexdigest()
    return f"rota-{digest[:32]}-{key.attempt}"


def read_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the task's container: waiting, running or terminated; empty while it is not known."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    for status in statuses:
        if status.get("name") == CONTAINER:
            state: Mapping[str, Any] = status.get("state", {})
            return state
    return {}


def has_begun(pod: Mapping[str, Any]) -> bool:
    """Whether the container runs or has run; raises if it never will."""
    state = read_state(pod)
    waiting = state.get("waiting", {})
    if waiting.get("reason") in HOPELESS:
        raise CannotStartError(f"{waiting['reason']}: {waiting.get('message', 'no message')}")
    return "running" in state or "terminated" in state


def describe_job(attempt: Attempt, name: str) -> dict[str, Any]:
    """The Job: one pod, never tried again by the cluster, because Rota decides about tries."""
    assignment = attempt.assignment
    labels = {
        "app.kubernetes.io/managed-by": "rota",
        "rota.attempt": str(attempt.key.attempt),
    }
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": LEFTOVER_SECONDS,
        "template": {
            "metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [describe_container(attempt)]},
        },
    }
    if assignment.timeout_seconds:
        # The worker ends it sooner; this is for a worker that is gone by then.
        spec["activeDeadlineSeconds"] = int(assignment.timeout_seconds) + LEFTOVER_SECONDS
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"rota.task_run_id": attempt.key.task_run_id, "rota.task": assignment.task},
        },
        "spec": spec,
    }


def describe_container(attempt: Attempt) -> dict[str, Any]:
    assignment = attempt.assignment
    container = assignment.spec.get("container") or {}
    environment = name_attempt(assignment) | read_variables(assignment)
    described: dict[str, Any] = {
        "name": CONTAINER,
        "image": str(container.get("image") or ""),
        "imagePullPolicy": PULL_POLICIES.get(str(container.get("pull", "missing")), "IfNotPresent"),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    # The cluster's words: `command` is what the image calls its entry point, `args` its command.
    if container.get("entrypoint"):
        described["command"] = split_command(container["entrypoint"])
    command = container.get("command")
    if command:
        described["args" if container.get("entrypoint") or isinstance(command, list) else "command"] = split_command(
            command
        )
    if assignment.spec.get("working_directory"):
        described["workingDir"] = str(assignment.spec["working_directory"])
    limits = {}
    if attempt.limits.get("memory_mb"):
        limits["memory"] = f"{int(attempt.limits['memory_mb'])}Mi"
    if container.get("cpus"):
        limits["cpu"] = str(container["cpus"])
    if limits:
        described["resources"] = {"limits": limits}
    return described
