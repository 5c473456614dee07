"""Real servers that know names: dnsmasq, and Serf agents."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

START_SECONDS = 20.0


def find_program(name: str) -> str:
    """The program; skips the test on a developer's machine without it, and fails in CI."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        reason = f"{name} is not installed: `make test` installs it on Debian"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def find_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port that is free now."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def run(command: Sequence[str], folder: Path, name: str) -> Iterator[Path]:
    """A process that ends with the test; its output."""
    output = folder / f"{name}.log"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, cwd=folder)
    try:
        yield output
    finally:
        process.terminate()
        process.wait(timeout=10)


@contextlib.contextmanager
def run_dnsmasq(folder: Path, *records: str) -> Iterator[str]:
    """A resolver that knows these records and nothing else; its address."""
    port = find_port(socket.SOCK_DGRAM)
    command = [
        *(find_program("dnsmasq"), "--keep-in-foreground", "--log-facility=-", "--no-resolv", "--no-hosts"),
        *("--conf-file=/dev/null", "--pid-file=", "--listen-address=127.0.0.1", "--bind-interfaces"),
        *(f"--port={port}", f"--user={os.environ.get('USER', 'root')}", *records),
    ]
    with run(command, folder, "dnsmasq") as output:
        _wait_for_line(output, "started")
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def run_serf(folder: Path, name: str, *arguments: str, join: str = "") -> Iterator[tuple[str, str]]:
    """A Serf agent; the addresses of its gossip and of its commands."""
    bind, rpc = f"127.0.0.1:{find_port()}", f"127.0.0.1:{find_port()}"
    command = [find_program("serf"), "agent", f"-node={name}", f"-bind={bind}", f"-rpc-addr={rpc}", *arguments]
    with run([*command, *([f"-join={join}"] if join else [])], folder, name) as output:
        _wait_for_line(output, "Serf agent running!")
        yield bind, rpc


def _wait_for_line(output: Path, text: str) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while text not in output.read_text(errors="replace"):
        assert time.monotonic() < give_up_at, output.read_text(errors="replace")
