"""The graph of a workflow's tasks, and what its trigger rules make of the tasks' states. Nothing recurses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.domain.rules import (
    DECIDED_STATE,
    HANDLES_FAILURE,
    OUTCOME_COUNTER,
    Counters,
    Decision,
    TriggerRule,
    decide,
)
from rota.domain.states import TASK_FINAL, RunState, TaskState


@dataclass(frozen=True, slots=True)
class Graph:
    """Tasks by position, each with the positions of its upstreams and downstreams. Never changes."""

    names: tuple[str, ...]
    positions: Mapping[str, int]
    upstream: tuple[tuple[int, ...], ...]
    downstream: tuple[tuple[int, ...], ...]


def build_graph(names: Iterable[str], depends_on: Mapping[str, Iterable[str]]) -> Graph:
    """The graph of these tasks. Every name in `depends_on` must be one of `names`."""
    ordered = tuple(names)
    positions = {name: position for position, name in enumerate(ordered)}
    upstream = tuple(tuple(positions[parent] for parent in depends_on.get(name, ())) for name in ordered)
    downstream: list[list[int]] = [[] for _ in ordered]
    for position, parents in enumerate(upstream):
        for parent in parents:
            downstream[parent].append(position)
    return Graph(ordered, positions, upstream, tuple(map(tuple, downstream)))


def _sort(graph: Graph) -> list[int]:
    """Positions with every upstream before its downstreams; what is on a cycle or below one is left out."""
    waiting = [len(parents) for parents in graph.upstream]
    ordered = [position for position, count in enumerate(waiting) if count == 0]
    for position in ordered:
        for child in graph.downstream[position]:
            waiting[child] -= 1
            if waiting[child] == 0:
                ordered.append(child)
    return ordered


def topological_order(graph: Graph) -> list[str]:
    """Every upstream before its downstreams; otherwise by depth, then as defined. The graph has no cycle."""
    return [graph.names[position] for position in _sort(graph)]


def find_cycle(graph: Graph) -> list[str] | None:
    """Some cycle in the direction of the work, its first task again at the end (`a, b, a`); None if none."""
    ordered = _sort(graph)
    if len(ordered) == len(graph.names):
        return None
    is_sorted = bytearray(len(graph.names))
    for position in ordered:
        is_sorted[position] = 1
    # Whatever could not be sorted has an upstream that could not: walking up must come round.
    current = is_sorted.index(0)
    path: list[int] = []
    seen_at: dict[int, int] = {}
    while current not in seen_at:
        seen_at[current] = len(path)
        path.append(current)
        current = next(parent for parent in graph.upstream[current] if not is_sorted[parent])
    cycle = path[seen_at[current] :][::-1]
    start = cycle.index(min(cycle))
    turned = cycle[start:] + cycle[:start]
    return [graph.names[position] for position in (*turned, turned[0])]


def roots(graph: Graph) -> list[str]:
    """The tasks that wait for none."""
    return [name for name, parents in zip(graph.names, graph.upstream, strict=True) if not parents]


def upstream_counts(graph: Graph) -> dict[str, int]:
    """How many tasks each one waits for."""
    return {name: len(parents) for name, parents in zip(graph.names, graph.upstream, strict=True)}


def descendants(graph: Graph, names: Iterable[str]) -> set[str]:
    """These tasks and everything downstream of them."""
    return _reach(graph, names, graph.downstream)


def ancestors(graph: Graph, names: Iterable[str]) -> set[str]:
    """These tasks and everything upstream of them."""
    return _reach(graph, names, graph.upstream)


def _reach(graph: Graph, names: Iterable[str], neighbours: Sequence[Sequence[int]]) -> set[str]:
    found = list(dict.fromkeys(graph.positions[name] for name in names))
    seen = set(found)
    for position in found:
        for neighbour in neighbours[position]:
            if neighbour not in seen:
                seen.add(neighbour)
                found.append(neighbour)
    return {graph.names[position] for position in seen}


def measure_depths(graph: Graph) -> dict[str, int]:
    """The length of the longest way to each task from a root: the column where a drawing puts it."""
    depths = [0] * len(graph.names)
    for position in _sort(graph):
        for child in graph.downstream[position]:
            depths[child] = max(depths[child], depths[position] + 1)
    return dict(zip(graph.names, depths, strict=True))


class _Tally:
    """The four counters of each task, kept up to date while states are decided."""

    def __init__(self, graph: Graph, states: Sequence[TaskState]) -> None:
        self._graph = graph
        size = len(graph.names)
        self.waiting = [len(parents) for parents in graph.upstream]
        self._outcomes = {name: [0] * size for name in ("succeeded", "failed", "skipped")}
        for position, state in enumerate(states):
            if state in TASK_FINAL:
                self.land(position, state)

    def land(self, position: int, state: TaskState) -> None:
        """Tells the downstreams of this task how it ended."""
        outcome = self._outcomes[OUTCOME_COUNTER[state]]
        for child in self._graph.downstream[position]:
            self.waiting[child] -= 1
            outcome[child] += 1

    def counters(self, position: int) -> Counters:
        return Counters(
            waiting=self.waiting[position],
            succeeded=self._outcomes["succeeded"][position],
            failed=self._outcomes["failed"][position],
            skipped=self._outcomes["skipped"][position],
        )


def propagate(graph: Graph, rules: Mapping[str, TriggerRule], states: Mapping[str, TaskState]) -> dict[str, TaskState]:
    """What becomes of the pending tasks: `queued`, `skipped` or `upstream_failed`. Others stay pending.

    Decided in rounds: all that the states at the round's beginning decide, then what follows from that.
    """
    current = [states[name] for name in graph.names]
    tally = _Tally(graph, current)
    candidates: Collection[int] = range(len(current))
    decided: dict[str, TaskState] = {}
    while candidates:
        landed = []
        for position in candidates:
            if current[position] is not TaskState.PENDING:
                continue
            decision = decide(rules[graph.names[position]], tally.counters(position))
            if decision is Decision.WAIT:
                continue
            current[position] = decided[graph.names[position]] = DECIDED_STATE[decision]
            if current[position] in TASK_FINAL:
                landed.append(position)
        for position in landed:
            tally.land(position, current[position])
        candidates = {child for position in landed for child in graph.downstream[position]}
    return decided


def run_outcome(
    graph: Graph,
    rules: Mapping[str, TriggerRule],
    states: Mapping[str, TaskState],
    teardown: Collection[str] = (),
) -> RunState:
    """How a run stands: running while a task is open; failed when a task other than a teardown failed or was
    cancelled and no direct downstream that handles failures succeeded; else success.

    A run that was itself cancelled is the engine's to know. `upstream_failed` always has a failed root.
    """
    if any(states[name] not in TASK_FINAL for name in graph.names):
        return RunState.RUNNING
    for position, name in enumerate(graph.names):
        if states[name] not in (TaskState.FAILED, TaskState.CANCELLED) or name in teardown:
            continue
        below = (graph.names[child] for child in graph.downstream[position])
        if not any(states[child] is TaskState.SUCCESS and rules[child] in HANDLES_FAILURE for child in below):
            return RunState.FAILED
    return RunState.SUCCESS
