"""One module per kind of task."""

from __future__ import annotations

from collections.abc import Mapping

from rota.worker.attempt import Executor
from rota.worker.executors.container import ContainerExecutor
from rota.worker.executors.http import HttpExecutor
from rota.worker.executors.inline import InlineExecutor
from rota.worker.executors.kubernetes import KubernetesExecutor
from rota.worker.executors.python import PythonExecutor
from rota.worker.executors.python_pool import PythonPool
from rota.worker.executors.shell import ShellExecutor
from rota.worker.options import WorkerOptions
from rota.worker.processes import Processes


def build_executors(options: WorkerOptions, processes: Processes) -> Mapping[str, Executor]:
    """Every executor that the options make possible, by the kind of task."""
    executors: dict[str, Executor] = {
        "shell": ShellExecutor(processes),
        "http": HttpExecutor(options),
        "python": PythonExecutor(PythonPool(processes, options), InlineExecutor(options.python_path)),
    }
    if options.container_socket:
        executors["container"] = ContainerExecutor(options.container_socket)
    if options.kubernetes_url:
        kubernetes = KubernetesExecutor(options)
        executors["kubernetes"] = kubernetes
        # Without an engine of its own, the worker runs containers in the cluster.
        executors.setdefault("container", kubernetes)
    return executors
