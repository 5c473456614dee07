"""Where the keys that encrypt secrets come from: a setting, a file, or a file of its own beside a SQLite database."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from rota.domain.errors import FieldError, InvalidInput
from rota.engine.vault import Vault, read_keys, write_new_key
from rota.settings import Settings, find_database_file

log = structlog.get_logger(__name__)
OWN_FILE = "secret.key"


def open_vault(settings: Settings, database_url: str) -> Vault:
    """The vault of these settings. Raises InvalidInput for keys that are none, without repeating them."""
    if settings.secret_key:
        return _read("secret_key", settings.secret_key)
    if settings.secret_key_file is not None:
        return _read_file("secret_key_file", settings.secret_key_file)
    database_file = find_database_file(database_url)
    if database_file is None:
        # Several nodes would each make a key of their own.
        return Vault()
    own = database_file.with_name(OWN_FILE)
    if not own.exists():
        _make_file(own)
    return _read_file("secret_key_file", own)


def _make_file(path: Path) -> None:
    # Written beside and then linked to its name, so that no half of it is ever read.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(write_new_key() + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    log.info("secret_key_made", file=str(path))


def _read_file(setting: str, path: Path) -> Vault:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as problem:
        raise InvalidInput.of([FieldError(setting, f"{path} cannot be read: {problem.strerror}")]) from problem
    return _read(setting, text)


def _read(setting: str, text: str) -> Vault:
    try:
        return Vault(read_keys(text))
    except ValueError as problem:
        raise InvalidInput.of([FieldError(setting, str(problem))]) from None
