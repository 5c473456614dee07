"""What must hold between the tasks of one definition: names, order, and the last word of clean-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.domain.graph import Graph, build_graph, find_cycle
from rota.domain.spec import TaskSpec
from rota.domain.spec_read import Faults, show

MAX_TASKS = 10_000
MAX_DEPENDENCIES = 200_000
_LONGEST_SHOWN_CYCLE = 20


def check_waits(name: str, tasks: Mapping[int, TaskSpec], faults: Faults) -> None:
    """Reports waits for the very run that they belong to."""
    for index, task in tasks.items():
        awaited = task.action.get("wait", {}).get("run", {})
        if awaited.get("workflow") == name and "logical_date" not in awaited:
            reason = "this run would wait for itself: name another workflow, or another logical_date"
            faults.add(f"tasks[{index}].wait.run.workflow", reason)


def check_tasks(tasks: Mapping[int, TaskSpec], faults: Faults) -> None:
    """Reports what is wrong between these tasks, given by their index in the definition's list."""
    indexes = _check_names(tasks, faults)
    edges = sum(len(task.depends_on) for task in tasks.values())
    if edges > MAX_DEPENDENCIES:
        faults.add("tasks", f"at most {MAX_DEPENDENCIES:,} dependencies are allowed, not {edges:,}")
        return
    known = _check_dependencies(tasks, indexes, faults)
    graph = build_graph(indexes, known)
    cycle = find_cycle(graph)
    if cycle is not None:
        faults.add("tasks", f"tasks wait for each other in a circle, remove one dependency: {_draw(cycle)}")
    _check_branches(tasks, graph, faults)
    _check_teardown(tasks, indexes, faults)


def _check_names(tasks: Mapping[int, TaskSpec], faults: Faults) -> dict[str, int]:
    indexes: dict[str, int] = {}
    for index, task in tasks.items():
        first = indexes.setdefault(task.name, index)
        if first != index:
            faults.add(f"tasks[{index}].name", f"{show(task.name)} is the name of tasks[{first}] already")
    return indexes


def _check_dependencies(
    tasks: Mapping[int, TaskSpec], indexes: Mapping[str, int], faults: Faults
) -> dict[str, list[str]]:
    """The dependencies that can be followed; the others are reported."""
    known: dict[str, list[str]] = {}
    for index, task in tasks.items():
        known[task.name] = []
        for position, name in enumerate(task.depends_on):
            path = f"tasks[{index}].depends_on[{position}]"
            if name == task.name:
                faults.add(path, "a task cannot wait for itself")
            elif name in indexes:
                known[task.name].append(name)
            else:
                faults.add(path, f"there is no task {show(name)}{faults.suggest(name, indexes)}")
    return known


def _draw(cycle: Sequence[str]) -> str:
    if len(cycle) > _LONGEST_SHOWN_CYCLE:
        cycle = [*cycle[: _LONGEST_SHOWN_CYCLE - 2], "…", cycle[-1]]
    return " → ".join(cycle)


def _check_branches(tasks: Mapping[int, TaskSpec], graph: Graph, faults: Faults) -> None:
    for index, task in tasks.items():
        if task.is_branch and not graph.downstream[graph.positions[task.name]]:
            faults.add(f"tasks[{index}].branch", "a branch needs tasks that depend on it")


def _check_teardown(tasks: Mapping[int, TaskSpec], indexes: Mapping[str, int], faults: Faults) -> None:
    for index, task in tasks.items():
        if task.is_teardown:
            continue
        for position, name in enumerate(task.depends_on):
            upstream = tasks[indexes[name]] if name in indexes else None
            if upstream is not None and upstream.is_teardown:
                reason = f"{show(name)} is a teardown task: only other teardown tasks can wait for it"
                faults.add(f"tasks[{index}].depends_on[{position}]", reason)
    if tasks and all(task.is_teardown for task in tasks.values()):
        faults.add("tasks", "at least one task must not be a teardown task")
