"""Commands about Rota itself."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from rota import __version__
from rota.cli.options import json_option, show, with_settings
from rota.client.http import Client
from rota.domain.errors import RotaError
from rota.settings import PREFIX, Settings, choose_database_url, find_database_file, hide_password, list_settings
from rota.store import migrate

EXIT_FAILURE = 1
LEAST_FREE_BYTES = 500_000_000
# What tasks find in their environment, and where the file of settings is named.
OTHER_VARIABLES = ("CONFIG", "RUN_ID", "TASK", "ATTEMPT", "IDEMPOTENCY_KEY", "LOGICAL_DATE", "PROCESS")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    what: str
    is_good: bool
    detail: str


@click.command()
@json_option
def version() -> None:
    """Print the version of Rota, Python and the system."""
    facts = {"rota": __version__, "python": platform.python_version(), "system": platform.platform()}
    show(facts, f"rota {facts['rota']} (Python {facts['python']}, {facts['system']})")


@click.command()
@json_option
@with_settings("server", "token", "data_dir", "database_url")
def doctor(settings: Settings) -> int:
    """Check settings, database and server. Fails if something is wrong."""
    findings = [*_check_variables(), _check_database(settings), *_check_disk(settings), _check_server(settings)]
    document = {"items": [{"what": f.what, "is_good": f.is_good, "detail": f.detail} for f in findings]}
    show(document, "\n".join(f"{'ok  ' if f.is_good else 'BAD '} {f.what}: {f.detail}" for f in findings))
    return 0 if all(finding.is_good for finding in findings) else EXIT_FAILURE


def _check_variables() -> Iterator[Finding]:
    known = {info.name.upper() for info in list_settings()} | set(OTHER_VARIABLES)
    unknown = [name for name in os.environ if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in known]
    for name in unknown:
        near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
        yield Finding(
            "environment", False, f"{name} is not a setting{f'; is {PREFIX}{near[0]} meant?' if near else ''}"
        )
    if not unknown:
        yield Finding("settings", True, "every variable is known, every value is allowed")


def _check_database(settings: Settings) -> Finding:
    url = choose_database_url(settings)
    file = find_database_file(url)
    if file is not None and not file.exists():
        return Finding("database", True, f"{file} will be made by `rota up`")
    return _try("database", lambda: migrate.check(url), f"{hide_password(url)} is up to date")


def _check_disk(settings: Settings) -> Iterator[Finding]:
    file = find_database_file(choose_database_url(settings))
    place = next((folder for folder in (file.parents if file else ()) if folder.is_dir()), None)
    if place is not None:
        free = shutil.disk_usage(place).free
        yield Finding("disk", free >= LEAST_FREE_BYTES, f"{free // 1_000_000:,} MB free at {place}")


def _check_server(settings: Settings) -> Finding:
    client = Client(settings.server, token=settings.token)
    return _try("server", lambda: client.get("/health"), f"{settings.server[0]} is well")


def _try(what: str, look: Callable[[], object], good: str) -> Finding:
    try:
        look()
    except RotaError as error:
        return Finding(what, False, error.detail)
    return Finding(what, True, good)
