"""What may not stand in the text: unfinished work, silenced checks, swallowed errors, foreign names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.architecture.source import ROOT, Module, parse, source_modules, tracked_files

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
# A silenced rule names itself and says why: `
NOQA = re.compile(r"#\s*noqa\b")
NOQA_WITH_REASON = re.compile(r"#\s*noqa: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)* - \S.{9,}")
LOG_CALLS = {"exception", "error", "warning", "critical"}

# Written in pieces, so that this file does not name them itself.
FOREIGN_HOSTS = re.compile(
    "|".join(("pypi" + r"\.org", "python" + "hosted", "registry" + r"\.npmjs", "deb" + r"\.debian"))
)
MACHINE_PATHS = re.compile("|".join(("/wo" + "rk/", r"(?<![\w.])/ro" + "ot/")))


def _comments(module: Module) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_nothing_is_unfinished():
    found = [
        f"{module.at(number)} {line.strip()}"
        for module in source_modules()
        for number, line in enumerate(module.lines, start=1)
        if UNFINISHED.search(line)
    ]
    assert not found


def test_no_type_error_is_silenced():
    found = [
        module.at(number)
        for module in source_modules()
        for number, comment in _comments(module)
        if "type: ignore" in comment
    ]
    assert not found


def test_a_silenced_rule_has_a_reason():
    found = [
        f"{module.at(number)} {comment}"
        for module in source_modules()
        for number, comment in _comments(module)
        if NOQA.search(comment) and not NOQA_WITH_REASON.search(comment)
    ]
    assert not found


def test_broad_except_logs_raises_or_explains():
    found = [
        module.at(node.lineno)
        for module in source_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _is_answered(module, node)
    ]
    assert not found, f"log it with context, raise it again, or say in a comment why not: {found}"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in caught
    )


def _is_answered(module: Module, handler: ast.ExceptHandler) -> bool:
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_CALLS:
            return True
    first_lines = range(handler.lineno, handler.body[0].lineno + 1)
    return any(number in first_lines for number, _ in _comments(module))


def test_no_test_sleeps():
    found = [
        module.at(node.lineno)
        for module in parse(ROOT / "tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep")
    ]
    assert not found, f"wait for what is expected, or hand in the time: {found}"


@pytest.mark.parametrize("pattern", [FOREIGN_HOSTS, MACHINE_PATHS], ids=["registry hosts", "machine paths"])
def test_no_file_names_another_machine(pattern: re.Pattern[str]):
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        match = pattern.search(text)
        if match is not None:
            found.append(f"{path.relative_to(ROOT)}: {match.group(0)}")
    assert not found
