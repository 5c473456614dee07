"""Forks: what the output of a branch task means for the tasks right below it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.domain.graph import Graph, descendants
from rota.domain.spec_read import show

_SEPARATORS = re.compile(r"[\s,]+")
_LONGEST_LIST = 20


@dataclass(frozen=True, slots=True)
class Fork:
    """The ways that a branch chooses among, by the name of the task right below it, clean-up left out."""

    branch: str
    # All tasks right below, clean-up too: naming it does no harm.
    known: frozenset[str]
    # What goes on when this one is chosen: itself, and those right below the branch that come after it as well.
    ways: Mapping[str, frozenset[str]]

    def leave_out(self, output: Any) -> frozenset[str]:
        """The tasks right below the branch that its output does not let go on. Raises ValueError."""
        chosen = read_choice(output)
        strangers = sorted(set(chosen) - self.known)
        if strangers:
            known = ", ".join(sorted(self.known)[:_LONGEST_LIST])
            raise ValueError(f"{show(strangers[0])} is no task right below {self.branch}: expected some of {known}")
        going = [self.ways[name] for name in chosen if name in self.ways]
        return frozenset(self.ways).difference(*going)


def build_fork(graph: Graph, branch: str, teardown: frozenset[str]) -> Fork:
    """The fork of the branch with this name."""
    known = frozenset(graph.names[place] for place in graph.downstream[graph.positions[branch]])
    choices = known - teardown
    return Fork(branch, known, {name: frozenset(descendants(graph, [name])) & choices for name in choices})


def read_choice(output: Any) -> Sequence[str]:
    """The names in a branch's output: one, or a list of them, as JSON or as text. Raises ValueError."""
    if isinstance(output, str):
        return _read_text(output.strip())
    if not isinstance(output, list | tuple):
        raise ValueError(f"expected the name of a task or a list of names, not {show(output)}")
    for name in output:
        if not isinstance(name, str):
            raise ValueError(f"expected a list of the names of tasks, and it holds {show(name)}")
    return output


def _read_text(text: str) -> Sequence[str]:
    if not text:
        raise ValueError("it is empty: expected the names of tasks, or [] for none of them")
    if text.startswith(("[", '"')):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(f"expected the names of tasks, not {show(text)}") from None
        return [value] if isinstance(value, str) else read_choice(value)
    return [name for name in _SEPARATORS.split(text) if name]
