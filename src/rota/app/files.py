"""The database before it is opened: one process for each file, and a schema that this code knows."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import structlog

from rota.domain.errors import Unavailable
from rota.store import migrate

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def hold_file(database_file: Path | None) -> Iterator[None]:
    """Keeps other processes of Rota away from the file: wake-ups and the one writer are matters inside a process.

    The system lets go of the lock however this process ends. None: the database is a server, which serves many.
    """
    if database_file is None:
        yield
        return
    path = database_file.with_name(database_file.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Unavailable(
            f"{path.parent} cannot be used for data: {error.strerror}; choose another folder with --data-dir",
            code="data_dir_unusable",
        ) from error
    try:
        _lock(descriptor, database_file)
        _check_writable(database_file)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, database_file: Path) -> None:
    try:
        # Not flock: that would pass on to forked children, and outlive this process with them.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        raise Unavailable(
            f"{database_file} is in use by another Rota{f' (process {owner})' if owner else ''}: stop that one, choose "
            "another folder with --data-dir, or use PostgreSQL, which serves many",
            code="database_in_use",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _check_writable(database_file: Path) -> None:
    """SQLite itself would notice only at the first write, long after the start."""
    for place in (database_file, database_file.parent):
        if place.exists() and not os.access(place, os.W_OK):
            raise Unavailable(
                f"{place} is read-only; give this user the right to write it, or choose another folder with --data-dir",
                code="database_unusable",
            )


def prepare_database(url: str, *, migrates: bool) -> None:
    """Leaves the database at the version that this code needs, or raises `Unavailable` with the command to run."""
    version = migrate.read_version(url)
    if version.is_right:
        return
    if not migrates or not version.is_known:
        migrate.check(url)
    log.info("database_upgrade", current=version.current or "none", needed=version.needed)
    migrate.upgrade(url)
