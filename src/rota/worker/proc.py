"""Reads of /proc: who descends from whom, which marker a process carries, how much memory it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_bytes(path: str) -> bytes:
    """The file's content; empty if the process is gone or closed to us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and start time (in clock ticks since boot), or None if there is no such process."""
    stat = read_bytes(f"/proc/{pid}/stat")
    if not stat:
        return None
    # The command's name may hold blanks and parentheses: the fields begin after the last one.
    fields = stat[stat.rindex(b")") + 2 :].split(None, 21)
    return fields[0].decode(), int(fields[1]), int(fields[19])


def read_marker(pid: int, variable: str) -> str:
    """The value of an environment variable of another process, empty if it has none or hides it."""
    prefix = variable.encode() + b"="
    for entry in read_bytes(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return ""


def read_resident_bytes(pid: int) -> int:
    fields = read_bytes(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE_BYTES if len(fields) > 1 else 0


class Children:
    """Finds children, by the kernel's own list where it is built in, else by every process's parent."""

    def __init__(self, *, has_lists: bool | None = None) -> None:
        if has_lists is None:
            pid = os.getpid()
            has_lists = os.path.exists(f"/proc/{pid}/task/{pid}/children")
        self._has_lists = has_lists

    def list_of(self, pid: int) -> list[int]:
        """The direct children of a process."""
        if not self._has_lists:
            return self._by_parent().get(pid, [])
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return []
        found: list[int] = []
        for thread in threads:
            found.extend(map(int, read_bytes(f"/proc/{pid}/task/{thread}/children").split()))
        return found

    def list_trees(self, roots: Iterable[int]) -> list[int]:
        """The roots and all their descendants."""
        tree = list(roots)
        if not tree:
            return tree
        if self._has_lists:
            for pid in tree:
                tree.extend(self.list_of(pid))
            return tree
        by_parent = self._by_parent()
        for pid in tree:
            tree.extend(by_parent.get(pid, ()))
        return tree

    def _by_parent(self) -> dict[int, list[int]]:
        by_parent: dict[int, list[int]] = {}
        for pid in list_processes():
            stat = read_stat(pid)
            if stat is not None:
                by_parent.setdefault(stat[1], []).append(pid)
        return by_parent
