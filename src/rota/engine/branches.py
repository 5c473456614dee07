"""Branches: their outputs are read before they succeed, and say which tasks right below are skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.domain.fork import Fork, build_fork
from rota.domain.graph import build_graph
from rota.domain.states import TaskState
from rota.engine.core import Core, Ended, TaskDefinition
from rota.store import definitions, outcomes, outputs
from rota.store.database import Transaction
from rota.store.encoding import decode_json
from rota.store.outcomes import Outcome, Standing


class Choice(NamedTuple):
    """What a branch that has come to its end chose: the ids of those left out, or why its output says nothing."""

    outcome: Outcome
    standing: Standing
    task: TaskDefinition
    left_out: tuple[str, ...] = ()
    fault: str | None = None


async def read_choices(core: Core, transaction: Transaction, held_back: Sequence[Outcome]) -> list[Choice]:
    """The choices of those among these successes that have not landed because they are branches."""
    standings = await outcomes.read_standings(transaction, [outcome.task_run_id for outcome in held_back])
    branches = {
        outcome: standing
        for outcome in held_back
        if (standing := standings.get(outcome.task_run_id)) is not None
        and standing.is_branch
        and (standing.status, standing.attempt) == ("running", outcome.attempt)
    }
    tasks = await core.find_tasks(transaction, [standing.task_id for standing in branches.values()])
    return [
        await _choose(core, transaction, outcome, standing, tasks[standing.task_id])
        for outcome, standing in branches.items()
    ]


async def _choose(
    core: Core, transaction: Transaction, outcome: Outcome, standing: Standing, task: TaskDefinition
) -> Choice:
    ids, fork = await _find_fork(core, transaction, task)
    try:
        left_out = fork.leave_out(decode_json(outcome.output_json))
    except ValueError as error:
        return Choice(outcome, standing, task, fault=f"the output of a branch names who goes on: {error}")
    return Choice(outcome, standing, task, tuple(sorted(ids[name] for name in left_out)))


async def _find_fork(core: Core, transaction: Transaction, task: TaskDefinition) -> tuple[Mapping[str, str], Fork]:
    """Ids by name of the tasks right below a branch, and the ways that it chooses among. They never change."""
    known = core.forks.get(task.id)
    if known is None:
        rows = {row.id: row for row in await definitions.read_version_tasks(transaction, task.version_id)}
        depends_on: dict[str, list[str]] = {}
        for task_id, upstream_id in await definitions.read_dependencies(transaction, task.version_id):
            depends_on.setdefault(rows[task_id].name, []).append(rows[upstream_id].name)
        graph = build_graph([row.name for row in rows.values()], depends_on)
        teardown = frozenset(row.name for row in rows.values() if row.is_teardown)
        fork = build_fork(graph, task.name, teardown)
        known = ({row.name: row.id for row in rows.values() if row.name in fork.known}, fork)
        core.forks.put(task.id, known)
    return known


async def explain_left_out(core: Core, transaction: Transaction, ended: Iterable[Ended]) -> list[tuple[str, str, str]]:
    """(run id, task id, reason) of the tasks that these branches left out."""
    branches = [end for end in ended if end.left_out]
    if not branches:
        return []
    tasks = await core.find_tasks(transaction, [end.task_id for end in branches])
    return [
        (end.run_id, task_id, f"left out by {tasks[end.task_id].name}") for end in branches for task_id in end.left_out
    ]


async def find_left_out(
    core: Core, transaction: Transaction, run_id: str, version_id: str
) -> list[tuple[str, str, str]]:
    """(run id, task id, reason) of all that the branches of a run have left out so far."""
    version = await core.find_version(transaction, version_id)
    if version is None or not version.branch_task_ids:
        return []
    tasks = await core.find_tasks(transaction, sorted(version.branch_task_ids))
    wanted = [(run_id, task.name) for task in tasks.values()]
    chosen: Mapping[str, Any] = (await outputs.read_outputs(transaction, wanted)).get(run_id, {})
    found = []
    for task in tasks.values():
        if task.name in chosen and chosen[task.name]["status"] == TaskState.SUCCESS:
            ids, fork = await _find_fork(core, transaction, task)
            found += [(ids[name], f"left out by {task.name}") for name in _repeat(fork, chosen[task.name]["output"])]
    return [(run_id, task_id, reason) for task_id, reason in sorted(found)]


def _repeat(fork: Fork, output: Any) -> frozenset[str]:
    """What was left out then. Nothing, if somebody else has declared the branch a success."""
    try:
        return fork.leave_out(output)
    except ValueError:
        return frozenset()
