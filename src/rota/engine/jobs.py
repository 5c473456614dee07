"""create_jobs: saves jobs and starts those that have no time, many at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec import WorkflowSpec
from rota.domain.spec_read import has_template
from rota.domain.spec_task import task_to_dict
from rota.engine.arming import arm_schedule
from rota.engine.backlog import require_room
from rota.engine.core import Core, VersionDefinition
from rota.engine.define import choose_lanes, explain_missing_pool, plan_version
from rota.engine.expressions import check_texts
from rota.engine.params import check_defaults, declare
from rota.engine.submit import RunRequest, submit
from rota.store import definitions, lanes, schedules
from rota.store.database import Transaction
from rota.store.definitions import NewVersion
from rota.store.encoding import encode_json
from rota.store.wakeups import Topic


@dataclass(frozen=True, slots=True)
class CreatedJob:
    """A job that was saved, and the run that it has been given if it has no schedule."""

    id: str
    name: str
    run_id: str | None


async def create_jobs(core: Core, transaction: Transaction, specs: Sequence[WorkflowSpec]) -> list[CreatedJob]:
    """Saves jobs, all or none. A fault names the job by its place: `jobs[3].pool`."""
    await _check(transaction, specs)
    await require_room(core, transaction, Counter(spec.namespace for spec in specs if spec.schedules))
    ids = core.new_ids(len(specs))
    wanted = {lane for spec in specs for lane in choose_lanes("", spec)}
    lane_ids = await lanes.ensure_lanes(transaction, wanted)
    versions = [plan_version(core, job_id, 1, spec, lane_ids) for job_id, spec in zip(ids, specs, strict=True)]
    await definitions.insert_jobs(
        transaction,
        [_make_row(job_id, spec, version.id) for job_id, spec, version in zip(ids, specs, versions, strict=True)],
    )
    await definitions.insert_versions(transaction, versions)
    await _save_schedules(core, transaction, ids, specs)
    runs = await _start(core, transaction, ids, specs, versions)
    return [CreatedJob(job_id, spec.name or job_id, runs.get(job_id)) for job_id, spec in zip(ids, specs, strict=True)]


async def _check(transaction: Transaction, specs: Sequence[WorkflowSpec]) -> None:
    errors: list[FieldError] = []
    for index, spec in enumerate(specs):
        task = spec.tasks[0]
        if task.is_gated or has_template((task.action, task.env, task.working_directory)):
            errors += check_texts(task_to_dict(task), f"jobs[{index}]", set())
        if spec.params:
            errors += check_defaults(spec.params, f"jobs[{index}].params")
    errors += await _find_missing_pools(transaction, specs)
    if errors:
        raise InvalidInput.of(errors)


async def _find_missing_pools(transaction: Transaction, specs: Sequence[WorkflowSpec]) -> list[FieldError]:
    wanted: dict[str, set[str]] = defaultdict(set)
    for spec in specs:
        if spec.tasks[0].pool is not None:
            wanted[spec.namespace].add(spec.tasks[0].pool)
    missing = {
        (namespace, pool)
        for namespace, pools in wanted.items()
        for pool in pools - set(await lanes.find_pools(transaction, namespace, pools))
    }
    return [
        FieldError(f"jobs[{index}].pool", explain_missing_pool(spec.tasks[0].pool or ""))
        for index, spec in enumerate(specs)
        if (spec.namespace, spec.tasks[0].pool) in missing
    ]


def _make_row(job_id: str, spec: WorkflowSpec, version_id: str) -> tuple[object, ...]:
    return (
        job_id,
        spec.namespace,
        spec.name or job_id,
        spec.description,
        encode_json(spec.tags),
        spec.is_active,
        spec.max_active_runs,
        version_id,
    )


async def _save_schedules(
    core: Core, transaction: Transaction, ids: Sequence[str], specs: Sequence[WorkflowSpec]
) -> None:
    rules = [
        (job_id, position, rule, spec.is_active)
        for job_id, spec in zip(ids, specs, strict=True)
        for position, rule in enumerate(spec.schedules)
    ]
    if not rules:
        return
    now = await schedules.read_now(transaction)
    rows = []
    for schedule_id, (job_id, position, rule, is_active) in zip(core.new_ids(len(rules)), rules, strict=True):
        armed = arm_schedule(schedule_id, rule, is_active, now)
        rows.append((armed[0], job_id, position, *armed[1:]))
    await schedules.insert_schedules(transaction, rows)
    transaction.wake(Topic.SCHEDULES)


async def _start(
    core: Core,
    transaction: Transaction,
    ids: Sequence[str],
    specs: Sequence[WorkflowSpec],
    versions: Sequence[NewVersion],
) -> dict[str, str | None]:
    """Runs the jobs that have no time; by job, the id of its run."""
    wanted = [
        (job_id, spec, version)
        for job_id, spec, version in zip(ids, specs, versions, strict=True)
        if not spec.schedules
    ]
    for job_id, spec, version in wanted:
        # The engine needs not read what was just written.
        core.versions.put(version.id, _define_version(job_id, spec, version))
    requests = [RunRequest(job_id) for job_id, _spec, _version in wanted]
    submitted = await submit(core, transaction, requests) if requests else []
    return {job_id: run.id for (job_id, _spec, _version), run in zip(wanted, submitted, strict=True)}


def _define_version(job_id: str, spec: WorkflowSpec, version: NewVersion) -> VersionDefinition:
    task_ids = tuple(str(row[0]) for row in version.tasks)
    gated = frozenset(task_ids) if spec.tasks[0].is_gated else frozenset()
    return VersionDefinition(
        version.id,
        job_id,
        task_ids,
        frozenset(task_ids),
        gated,
        spec.run_timeout_seconds,
        declare(spec.params) if spec.params else None,
        is_watched=spec.is_watched,
    )
