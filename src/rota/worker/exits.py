"""The limits of the kernel, and what the end of a process says about them."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping

from rota.domain.work import ErrorType
from rota.worker.launch import Ended

# A shell whose child was ended by a signal exits with this and the signal's number.
SHELL_SIGNAL_BASE = 128


def explain_exit(ended: Ended, limits: Mapping[str, float]) -> tuple[ErrorType, str]:
    """The error type and sentence for an exit code or a signal."""
    code = ended.exit_code if ended.exit_code is not None else -9
    signal_number = -code if code < 0 else max(0, code - SHELL_SIGNAL_BASE)
    if ended.is_out_of_memory:
        memory_limit = limits.get("memory_mb")
        limit = f"limits.memory_mb = {memory_limit:g}" if memory_limit else "there is"
        return ErrorType.OOM, f"used more memory than {limit}"
    cpu_limit = limits.get("cpu_seconds", 0)
    is_killed_late = signal_number == signal.SIGKILL and ended.cpu_seconds >= cpu_limit * 0.9
    if cpu_limit and (signal_number == signal.SIGXCPU or is_killed_late):
        return ErrorType.TIMEOUT, f"used more processor time than limits.cpu_seconds = {cpu_limit:g}"
    if code < 0:
        return ErrorType.SIGNAL, f"ended by signal {-code} ({name_signal(-code)})"
    hint = {126: ": the command cannot be executed", 127: ": the command was not found"}.get(code, "")
    return ErrorType.EXIT_CODE, f"exit code {code}{hint}"


def limit_argv(argv: list[str], limits: Mapping[str, float]) -> list[str]:
    """The command behind a shell that sets the kernel's limits first: set from outside after the start, they
    would miss what the command starts in its first moment."""
    settings = []
    if cpu_seconds := limits.get("cpu_seconds"):
        soft = max(1, math.ceil(cpu_seconds))
        # The soft limit sends SIGXCPU; who ignores that is killed a second later.
        settings += [f"ulimit -S -t {soft}", f"ulimit -H -t {soft + 1}"]
    if open_files := limits.get("open_files"):
        settings.append(f"ulimit -n {int(open_files)}")
    if not settings:
        return argv
    return ["/bin/sh", "-c", " && ".join([*settings, 'exec "$@"']), "sh", *argv]


def name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
