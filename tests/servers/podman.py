"""A Podman service of the tests' own, with an image made from nothing but busybox."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

IMAGE = "localhost/rota-test:latest"
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
netns = "none"
"""


def find_podman() -> str:
    """The service needs root here; without it, or without the programs: skipped, but a failure in CI."""
    missing = [name for name in ("podman", "runc", "busybox") if shutil.which(name) is None]
    if not missing and os.geteuid() == 0:
        return "podman"
    reason = f"a Podman service cannot be started here (missing: {missing or 'root'})"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def open_podman() -> Iterator[str]:
    """The socket of a Podman service with the image loaded; it ends afterwards."""
    program = find_podman()
    # Podman wants short paths, which those of tests are not.
    with tempfile.TemporaryDirectory(prefix="rota-", dir="/tmp", ignore_cleanup_errors=True) as home:
        yield from _serve(program, Path(home))


def _serve(program: str, home: Path) -> Iterator[str]:
    (home / "containers.conf").write_text(CONFIGURATION)
    options = [program, "--root", f"{home}/root", "--runroot", f"{home}/run", "--tmpdir", f"{home}/tmp"]
    options += ["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--runtime=runc"]
    environment = {**os.environ, "CONTAINERS_CONF": f"{home}/containers.conf"}
    subprocess.run(
        [*options, "import", "--change", "ENV PATH=/bin", str(make_image(home)), IMAGE],
        check=True,
        env=environment,
        capture_output=True,
    )
    path = f"{home}/s"
    service = subprocess.Popen([*options, "system", "service", "--time=0", f"unix://{path}"], env=environment)
    try:
        yield path
    finally:
        service.terminate()
        service.wait()


def make_image(home: Path) -> Path:
    """A root file system with busybox as every program that the tests use."""
    tree = home / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "tmp").mkdir()
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, tree / "bin/busybox")
    for name in ("sh", "echo", "sleep", "env", "cat", "head", "tr", "id"):
        (tree / "bin" / name).symlink_to("busybox")
    archive = home / "image.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, arcname=".")
    return archive
