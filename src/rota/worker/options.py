"""What can be set on a worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

MEBIBYTE = 1024 * 1024

# The hard cap of a task's output; what is larger belongs into a file or a store of its own.
MAX_OUTPUT_BYTES = MEBIBYTE


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Settings of one worker; the defaults are those of `rota worker`."""

    name: str = field(default_factory=socket.gethostname)
    queues: tuple[str, ...] = ("default",)
    # Empty: every kind that this worker can execute.
    kinds: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 16
    # Between TERM and KILL.
    grace_seconds: float = 10.0
    # How long a stopping worker lets its running tasks go on before it hands them back.
    drain_seconds: float = 30.0
    # How long a stopping worker tries to deliver its last reports.
    farewell_seconds: float = 10.0
    claim_wait_seconds: float = 20.0
    # Of each attempt's log, the first and the last bytes are kept.
    max_log_head_bytes: int = MEBIBYTE
    max_log_tail_bytes: int = MEBIBYTE
    # Log bytes that wait for the server, over all attempts; beyond it only the tails are kept.
    max_buffered_log_bytes: int = 32 * MEBIBYTE
    log_flush_seconds: float = 0.1
    # Address ranges that HTTP tasks may reach although they are private.
    http_allow: tuple[str, ...] = ()
    http_max_response_bytes: int = 4 * MEBIBYTE
    http_timeout_seconds: float = 30.0
    # Most warm Python processes at once; 0: as many as `concurrency`.
    python_processes: int = 0
    python_max_tasks: int = 10_000
    python_max_memory_bytes: int = 512 * MEBIBYTE
    # Directories from which `module:function` is imported, besides the installed packages.
    python_path: tuple[str, ...] = (".",)
    # A Docker-compatible socket; empty: no container tasks.
    container_socket: str = ""
    # The Kubernetes API (`https://…`); empty: no kubernetes tasks.
    kubernetes_url: str = ""
    kubernetes_namespace: str = "default"
    # What is empty is taken from where a pod finds it, if it is there.
    kubernetes_token_file: str = ""
    kubernetes_ca_file: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
