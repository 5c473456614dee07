"""Which workflows start which others, kept beside their definitions; a circle is refused when it is saved."""

from __future__ import annotations

from collections.abc import Sequence

from rota.domain.errors import FieldError, InvalidInput
from rota.domain.spec import WorkflowSpec
from rota.store import links
from rota.store.database import Transaction
from rota.store.links import ROWS_PER_STATEMENT, Link


async def save_links(transaction: Transaction, workflow_id: str, spec: WorkflowSpec) -> None:
    """Keeps whom the runs of this workflow start and which ends it waits for. Raises InvalidInput for a circle."""
    own = find_links(spec)
    # Nothing can name a job.
    if own and spec.kind == "workflow":
        circle = await _find_circle(transaction, workflow_id, spec, own)
        if circle is not None:
            raise InvalidInput.of([circle])
    await links.replace_links(transaction, workflow_id, spec.namespace, own)


def find_links(spec: WorkflowSpec) -> list[Link]:
    """The workflows that a definition names."""
    calls = [
        Link("call", position, task.action["workflow"])
        for position, task in enumerate(spec.tasks)
        if task.kind == "workflow"
    ]
    return calls + [Link("end", position, on.workflow, on.status) for position, on in enumerate(spec.on)]


async def _find_circle(
    transaction: Transaction, workflow_id: str, spec: WorkflowSpec, own: Sequence[Link]
) -> FieldError | None:
    """Goes from this workflow to all that its runs start, and on from there, until it comes back."""
    called = {link.name: link for link in own if link.kind == "call"}
    heard = {link.name: link for link in own if link.kind == "end"}
    came_from: dict[str, str] = {}
    current = [spec.name]
    while current:
        steps = await _read_steps(transaction, workflow_id, spec.namespace, current)
        steps += [(spec.name, name) for name in called if spec.name in current]
        steps += [(name, spec.name) for name in heard if name in current]
        current = []
        for source, target in steps:
            if target == spec.name:
                path = [*_walk_back(spec.name, source, came_from), spec.name]
                link = called.get(path[1]) or heard.get(path[-2])
                # A circle among others is not of this definition's making.
                if link is not None:
                    return _explain(link, path)
            elif target not in came_from:
                came_from[target] = source
                current.append(target)
    return None


async def _read_steps(
    transaction: Transaction, workflow_id: str, namespace: str, names: Sequence[str]
) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for start in range(0, len(names), ROWS_PER_STATEMENT):
        part = names[start : start + ROWS_PER_STATEMENT]
        found += await links.read_started(transaction, namespace, part, apart_from=workflow_id)
    return found


def _walk_back(first: str, last: str, came_from: dict[str, str]) -> list[str]:
    path = [last]
    while path[-1] != first:
        path.append(came_from[path[-1]])
    return path[::-1]


def _explain(link: Link, path: Sequence[str]) -> FieldError:
    field = f"tasks[{link.position}].workflow" if link.kind == "call" else f"on[{link.position}].workflow"
    return FieldError(field, f"{' → '.join(path)}: a workflow cannot start itself, alone or through others")
