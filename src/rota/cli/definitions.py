"""Commands on definition files: check them, and apply them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from rota.authoring.files import Definition, find_files, read_definitions
from rota.cli.options import json_option, show, with_client, write_table
from rota.client.http import Client
from rota.domain.errors import FieldError, InvalidInput

PLACES = click.argument("places", nargs=-1, required=True, metavar="FILE|DIR…", type=click.Path(path_type=Path))


@click.command()
@PLACES
@json_option
def validate(places: Sequence[Path]) -> None:
    """Check definition files (YAML or JSON) without a server. Every fault is named with its file and line."""
    rows = [
        {
            "workflow": found.spec.name,
            "tasks": len(found.spec.tasks),
            "schedules": len(found.spec.schedules),
            "file": str(found.path),
        }
        for found in _read(places)
    ]
    show({"items": rows}, lambda: write_table(rows, ("workflow", "tasks", "schedules", "file"), empty=""))


@click.command()
@PLACES
@with_client
def apply(client: Client, places: Sequence[Path]) -> None:
    """Create or change workflows so that they are as the files say. Nothing is sent if one of the files is faulty."""
    rows = [_apply(client, found) for found in _read(places)]
    show({"items": rows}, lambda: write_table(rows, ("workflow", "version", "file"), empty=""))


def _apply(client: Client, found: Definition) -> dict[str, Any]:
    answer = client.put(f"/workflows/{found.spec.name}", found.document)
    version = answer.get("current_version", answer.get("version"))
    return {"workflow": found.spec.name, "version": version, "file": str(found.path)}


def _read(places: Sequence[Path]) -> list[Definition]:
    """Everything that the files define; the faults of all files in one error."""
    now = datetime.now(UTC)
    found: list[Definition] = []
    faults: list[FieldError] = []
    for path in [path for place in places for path in find_files(place)]:
        try:
            found += read_definitions(path, now=now)
        except InvalidInput as error:
            faults += error.errors
    if faults:
        raise InvalidInput.of(faults)
    if not found:
        raise InvalidInput.of([FieldError(str(places[0]), "holds no definition files (.yaml, .yml or .json)")])
    return found
