"""The project's own text, parsed once: what the architecture tests look at."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "rota"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file: where it is, its lines and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Its dotted name (`rota.domain.states`)."""
        parts = self.path.relative_to(SOURCE.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def at(self, line: int) -> str:
        """`src/rota/x.py:12`, for messages."""
        return f"{self.path.relative_to(ROOT)}:{line}"

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


@functools.cache
def parse(directory: Path) -> tuple[Module, ...]:
    """Every Python file below a directory."""
    found = []
    for path in sorted(directory.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, text, ast.parse(text, filename=str(path))))
    return tuple(found)


def source_modules() -> tuple[Module, ...]:
    return parse(SOURCE)


def length(function: Function) -> int:
    """Lines from the first decorator to the end, the docstring left out."""
    assert function.end_lineno is not None
    first = function.body[0]
    docstring = 0
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        assert first.end_lineno is not None
        docstring = first.end_lineno - first.lineno + 1
    return function.end_lineno - function.lineno + 1 - docstring


_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def nesting(node: ast.AST) -> int:
    """How many blocks lie inside each other below a node; `elif` is its `if`, inner functions count alone."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        own = 1 if isinstance(child, _BLOCKS) and not is_elif else 0
        deepest = max(deepest, own + nesting(child))
    return deepest


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """Each module that is imported, by its dotted name, with the line."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node.lineno


def tracked_files() -> list[Path]:
    """Every file that is, or would be, under version control."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        names = [name for name in done.stdout.split("\0") if name]
        return [path for path in (ROOT / name for name in names) if path.is_file()]
    skipped = {".venv", ".git", "node_modules", "__pycache__"}
    return [
        path for path in ROOT.rglob("*") if path.is_file() and not skipped.intersection(path.relative_to(ROOT).parts)
    ]
