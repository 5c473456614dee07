"""Finding what a path names, within the caller's namespace; what is elsewhere does not exist."""

from __future__ import annotations

from typing import Any

from rota.api.context import Api
from rota.domain.errors import NotFound
from rota.domain.ids import is_uuid
from rota.store import definitions
from rota.store.definitions import WorkflowRow
from rota.store.reads import jobs, runs, workflows


def read_id(text: str, what: str) -> str:
    """An id in its stored form; something that is no id is the name of nothing."""
    if not is_uuid(text):
        raise NotFound(f"there is no {what} {text[:100]}: an id looks like 01890a5d-ac96-774b-bcce-b302099a8057")
    return text.lower()


async def require_workflow(api: Api, namespace: str, reference: str) -> WorkflowRow:
    """A workflow by its id or name (a job by its id)."""
    by_id = reference.lower() if is_uuid(reference) else None
    found = await api.database.read(
        lambda tx: definitions.find_workflow(tx, namespace, workflow_id=by_id, name=reference)
    )
    if found is None:
        raise NotFound(f"there is no workflow {reference[:200]}")
    return found


async def require_version(api: Api, found: WorkflowRow, number: int) -> Any:
    """A version of a workflow with its definition."""
    row = None
    if 0 < number <= found.current_version:
        row = await api.database.read(lambda tx: workflows.read_version(tx, found.id, number))
    if row is None:
        raise NotFound(f"workflow {found.name} has no version {number}: the current one is {found.current_version}")
    return row


async def require_run(api: Api, namespace: str, run_id: str) -> Any:
    wanted = read_id(run_id, "workflow run")
    found = await api.database.read(lambda tx: runs.read_run(tx, namespace, wanted))
    if found is None:
        raise NotFound(f"there is no workflow run {run_id}")
    return found


async def require_task_run(api: Api, namespace: str, task_run_id: str) -> Any:
    wanted = read_id(task_run_id, "task run")
    found = await api.database.read(lambda tx: runs.read_task_run(tx, namespace, wanted))
    if found is None:
        raise NotFound(f"there is no task run {task_run_id}")
    return found


async def require_job(api: Api, namespace: str, job_id: str) -> Any:
    wanted = read_id(job_id, "job")
    found = await api.database.read(lambda tx: jobs.read_job(tx, namespace, wanted))
    if found is None:
        raise NotFound(f"there is no job {job_id}")
    return found
