"""Writes the states and trigger rules of `rota.domain` into docs/reference/states.md, between its markers.

`python scripts/generate_states.py` rewrites the page; `--check` only says whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from rota.domain.rules import HANDLES_FAILURE, RULES, Clause, TriggerRule
from rota.domain.states import RUN_FACTS, RUN_MOVES, SYNONYMS, TASK_FACTS, TASK_MOVES, StateFacts

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "states.md"
State = TypeVar("State", bound=StrEnum)
# The words of the decisions and counters in a sentence.
_DECISIONS = {"run": "runs", "skip": "`skipped`", "fail": "`upstream_failed`", "wait": "waits"}


def render_states(facts: Mapping[State, StateFacts], moves: Mapping[State, frozenset[State]]) -> str:
    """A Mermaid diagram in the colours of the user interface, and a table of the same."""
    first = next(iter(facts))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for state in facts:
        lines += [f"    {state} --> {target}" for target in facts if target in moves[state]]
        lines += [f"    {state} --> [*]"] * (not moves[state])
    for state, fact in facts.items():
        lines += [f"    classDef {state}_colour fill:{fact.colour}", f"    class {state} {state}_colour"]
    lines += ["```", "", "| state | means | over | may become |", "|---|---|---|---|"]
    for state, fact in facts.items():
        targets = ", ".join(f"`{target}`" for target in facts if target in moves[state]) or "nothing else"
        lines.append(f"| `{state}` | {fact.meaning} | {'yes' if fact.is_final else 'no'} | {targets} |")
    return "\n".join(lines)


def render_synonyms() -> str:
    lines = ["| given | means |", "|---|---|"]
    return "\n".join(lines + [f"| `{word}` | `{state}` |" for word, state in sorted(SYNONYMS.items())])


def render_rules() -> str:
    """Each rule's clauses in words: the first that fits decides, else the task waits."""
    lines = ["| rule | decides, the first that fits | its success handles a failure |", "|---|---|---|"]
    for rule in TriggerRule:
        clauses = "; ".join(_describe(clause) for clause in RULES[rule])
        lines.append(f"| `{rule}` | {clauses} | {'yes' if rule in HANDLES_FAILURE else 'no'} |")
    return "\n".join(lines)


def _describe(clause: Clause) -> str:
    tests = [f"any {name}" for name in clause.some] + [f"none {name}" for name in clause.none]
    return f"{' and '.join(tests) or 'in any case'}: {_DECISIONS[clause.decision]}"


def fill_page(text: str) -> str:
    """The page with everything between its markers made anew."""
    parts = {
        "task states": render_states(TASK_FACTS, TASK_MOVES),
        "run states": render_states(RUN_FACTS, RUN_MOVES),
        "synonyms": render_synonyms(),
        "rules": render_rules(),
    }
    for name, content in parts.items():
        begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}{content}{end}{after}"
    return text


def main() -> int:
    current = PAGE.read_text(encoding="utf-8")
    wanted = fill_page(current)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif current != wanted:
        print(f"{PAGE.name} is out of date: run python scripts/generate_states.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
