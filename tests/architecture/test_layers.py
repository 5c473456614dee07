"""What the import contracts cannot say: a pure domain, one owner of dialects, honest names."""

from __future__ import annotations

import ast
import sys
import tomllib
from typing import Any

from tests.architecture.source import ROOT, SOURCE, Module, imports, source_modules

BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}

# Reading a clock, the network, files or the environment: what a pure domain gets as an argument instead.
IMPURE = {
    *(
        "asyncio",
        "concurrent",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
    ),
    *("select", "selectors", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading"),
}
CLOCK_READS = {"now", "utcnow", "today", "time", "monotonic", "perf_counter", "time_ns", "monotonic_ns"}
CLOCK_OWNERS = {"datetime", "date", "time"}

DIALECT_WORDS = ("sqlite", "postgresql", "asyncpg", "aiosqlite")
# Where a dialect may be named: the one module that knows them, and where a URL is chosen or explained.
DIALECT_OWNERS = {"rota.store.dialect", "rota.settings", "rota.settings.addresses", "rota.app"}


def _domain() -> list[Module]:
    return [module for module in source_modules() if module.name.startswith("rota.domain")]


def _contracts() -> list[dict[str, Any]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return found


def test_domain_imports_only_the_standard_library():
    foreign = [
        f"{module.at(line)} {name}"
        for module in _domain()
        for name, line in imports(module)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("rota.domain")
    ]
    assert not foreign


def test_domain_does_nothing_but_compute():
    impure = [
        f"{module.at(line)} {name}"
        for module in _domain()
        for name, line in imports(module)
        if name.split(".")[0] in IMPURE
    ]
    assert not impure, f"hand it in as an argument: {impure}"


def test_domain_never_reads_the_clock():
    reads = [
        module.at(node.lineno)
        for module in _domain()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCK_READS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in CLOCK_OWNERS
    ]
    assert not reads, f"`now` is an argument: {reads}"


def test_the_sql_contract_covers_every_other_package():
    contract = next(c for c in _contracts() if "sqlalchemy" in c.get("forbidden_modules", ()))
    packages = {
        f"rota.{path.stem}"
        for path in SOURCE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem not in ("__init__", "store")
    }
    assert set(contract["source_modules"]) == packages


def test_contracts_have_no_exceptions():
    assert [contract["name"] for contract in _contracts() if contract.get("ignore_imports")] == []


def test_module_names_say_what_is_inside():
    vague = [
        str(module.path.relative_to(ROOT))
        for module in source_modules()
        if BANNED_NAMES.intersection(module.name.split("."))
    ]
    assert not vague


def test_only_the_dialect_module_names_a_dialect():
    named = [
        f"{module.at(node.lineno)} {value!r}"
        for module in source_modules()
        if module.name not in DIALECT_OWNERS
        for node, value in _code_strings(module)
        if value.lower().startswith(DIALECT_WORDS)
    ]
    assert not named, f"ask rota.store.dialect instead: {named}"


def _code_strings(module: Module) -> list[tuple[ast.Constant, str]]:
    """String constants that are not docstrings, with their values."""
    prose = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    return [
        (node, node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]
