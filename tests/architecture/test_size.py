"""Small pieces: files, functions and nesting stay within what is easy to hold in mind."""

from __future__ import annotations

from tests.architecture.source import ROOT, length, nesting, parse, source_modules

# Migrations are written once, as the tables were then, and never read as code again.
MODULES = tuple(module for module in source_modules() if "migrations" not in module.path.parts)
SOURCE_FILE_LINES = 400
TEST_FILE_LINES = 600
FUNCTION_LINES = 40
FUNCTION_LINES_STOP = 60
LONG_FUNCTIONS_SHARE = 0.03
NESTING = 3
NESTING_STOP = 4


def test_source_files_are_short():
    long = [f"{m.path.relative_to(ROOT)}: {len(m.lines)}" for m in MODULES if len(m.lines) > SOURCE_FILE_LINES]
    assert not long, f"split by duty what has more than {SOURCE_FILE_LINES} lines: {long}"


def test_test_files_are_short():
    modules = parse(ROOT / "tests")
    long = [f"{m.path.relative_to(ROOT)}: {len(m.lines)}" for m in modules if len(m.lines) > TEST_FILE_LINES]
    assert not long, f"split by subject what has more than {TEST_FILE_LINES} lines: {long}"


def test_no_function_is_very_long():
    long = [
        f"{module.at(function.lineno)} {function.name}: {length(function)}"
        for module in MODULES
        for function in module.functions()
        if length(function) > FUNCTION_LINES_STOP
    ]
    assert not long, f"no function has more than {FUNCTION_LINES_STOP} lines: {long}"


def test_long_functions_are_rare():
    lengths = {
        f"{module.at(function.lineno)} {function.name}": length(function)
        for module in MODULES
        for function in module.functions()
    }
    long = {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES}
    share = len(long) / max(len(lengths), 1)
    assert share <= LONG_FUNCTIONS_SHARE, f"{share:.1%} of functions have more than {FUNCTION_LINES} lines: {long}"


def test_blocks_are_not_deeply_nested():
    depths = {
        f"{module.at(function.lineno)} {function.name}": nesting(function)
        for module in MODULES
        for function in module.functions()
    }
    very_deep = [name for name, depth in depths.items() if depth > NESTING_STOP]
    assert not very_deep, f"blocks lie more than {NESTING_STOP} deep: {very_deep}"
    deep = [name for name, depth in depths.items() if depth > NESTING]
    share = len(deep) / max(len(depths), 1)
    assert share <= LONG_FUNCTIONS_SHARE, f"{share:.1%} of functions nest deeper than {NESTING}: {deep}"
