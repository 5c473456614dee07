"""What a storm did and what was found after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """Counts of everything done and found; `faults` is empty when nothing was lost or left behind."""

    title: str
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def check(self, is_right: bool, fault: str) -> None:
        if not is_right:
            self.faults.append(fault)

    def show(self) -> str:
        lines = [f"== {self.title}"]
        lines += [f"  {name:<44} {number:>8}" for name, number in sorted(self.counts.items())]
        lines += [f"  {note}" for note in self.notes]
        lines.append(f"  {len(self.faults)} faults" if self.faults else "  nothing lost, nothing left behind")
        lines += [f"    {fault}" for fault in self.faults[:50]]
        return "\n".join(lines)
