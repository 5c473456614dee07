"""Finding and calling what `module:function` names."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

CHECK_SECONDS = 0.5


class BadReferenceError(Exception):
    """The reference names nothing that can be called; the message says what is wrong with it."""


class BadResultError(Exception):
    """What the function returned cannot be the output of a task."""


def extend_path(directories: Iterable[str]) -> None:
    """Makes modules in the directories importable, before the installed packages."""
    for directory in reversed([os.path.abspath(directory) for directory in directories]):
        if directory not in sys.path:
            sys.path.insert(0, directory)


def find_function(reference: str) -> Callable[..., Any]:
    """The callable that `package.module:function` names. Errors inside the module come out as they are."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise BadReferenceError(f'python: expected "module:function", not {reference!r}')
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise BadReferenceError(f"python: there is no module {error.name!r} on this worker") from None
        raise
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise BadReferenceError(f"python: module {module_name!r} has no {path!r}") from None
    if not callable(found):
        raise BadReferenceError(f"python: {reference!r} is not a function but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


class FunctionTable:
    """Functions found before, and whether their modules have changed since."""

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._files: dict[str, float] = {}
        self._check_at = 0.0

    def get(self, reference: str) -> Callable[..., Any]:
        function = self._functions.get(reference)
        if function is None:
            function = self._functions[reference] = find_function(reference)
            file = getattr(sys.modules.get(reference.partition(":")[0]), "__file__", None)
            if file:
                self._files[file] = read_change_time(file)
        return function

    def has_changed(self) -> bool:
        """Whether a module that was imported here is another one on disk by now. Looks twice a second at most."""
        now = time.monotonic()
        if now < self._check_at:
            return False
        self._check_at = now + CHECK_SECONDS
        return any(read_change_time(file) != changed_at for file, changed_at in self._files.items())


def read_change_time(file: str) -> float:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0.0


def encode_result(result: object, max_bytes: int) -> bytes:
    """The result as JSON."""
    try:
        encoded = msgspec.json.encode(result)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadResultError(
            f"the return value ({type(result).__name__}) cannot be written as JSON: {error}; "
            "return numbers, text, lists and objects of them"
        ) from None
    if len(encoded) > max_bytes:
        raise BadResultError(
            f"the return value has {len(encoded):,} bytes as JSON, and {max_bytes:,} are allowed: "
            "write it to a file or an object store and return its address"
        )
    return encoded
