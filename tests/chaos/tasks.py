"""What the Python tasks of a storm call. Each worker has a copy beside it, named `chaos_tasks`."""

from __future__ import annotations

import os
import subprocess
import threading


def work(seconds: float = 0.0, is_tree: bool = False) -> None:
    """Writes down the start, works, and writes down the end; a tree leaves processes running, as daemons do."""
    _write("start")
    if is_tree:
        subprocess.run(["/bin/sh", "-c", "(setsid sh -c 'sleep 600 & sleep 600' >/dev/null 2>&1 &)"], check=True)
    threading.Event().wait(seconds)
    _write("end")


def _write(word: str) -> None:
    with open(f"{os.environ['CHAOS_EFFECTS']}/{os.environ['ROTA_IDEMPOTENCY_KEY']}", "a") as file:
        file.write(f"{word} {os.environ['ROTA_ATTEMPT']}\n")
