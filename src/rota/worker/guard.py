"""The guard: starts the launcher, and when that has ended, ends whatever it has left.

Killing the launcher, or it and the worker together, so leaves nothing behind: what loses its parent comes to the
nearest sub-reaper above it, which is the guard.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys

from rota.worker import proc
from rota.worker.launcher import Launcher, send_signal

PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def keep_watch(launcher: int) -> None:
    """Waits for the end of the launcher, then kills until nothing of it is left."""
    os.waitpid(launcher, 0)
    children = proc.Children()
    while tree := children.list_trees(children.list_of(os.getpid())):
        for pid in tree:
            send_signal(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        select.select([], [], [], 0.01)


def main() -> None:
    """Arguments: the descriptor of the launcher's socket, the token that marks what is started, and how many files
    a program may open."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]), hard))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    become_subreaper()
    launcher = os.fork()
    if launcher:
        connection.close()
        keep_watch(launcher)
        return
    # That is not inherited.
    become_subreaper()
    Launcher(connection, sys.argv[2]).serve()


if __name__ == "__main__":
    main()
