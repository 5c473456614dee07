"""Commands on secrets. A value is read from a terminal, from standard input or from a file, never from an argument,
which every process of the machine could see."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

import click

from rota.cli.options import json_option, show, with_client, write_table
from rota.client.http import Client
from rota.domain.errors import FieldError, InvalidInput
from rota.engine.vault import write_new_key

NAMESPACE = click.option("--namespace", default="default", show_default=True)


@click.group()
def secret() -> None:
    """Put, list, delete and re-encrypt secrets."""


@secret.command()
@click.argument("name")
@click.option("--file", "file", type=click.Path(path_type=Path, dir_okay=False), help="read the value from this file")
@NAMESPACE
@with_client
def put(client: Client, name: str, file: Path | None, namespace: str) -> None:
    """Keep a secret. Its value is asked for, or read from standard input: `rota secret put TOKEN < file`."""
    answer = client.put(_write_path(name, namespace), {"value": _read_value(file)})
    show(answer, f"secret {name} is kept")


@secret.command("list")
@NAMESPACE
@with_client
def list_secrets(client: Client, namespace: str) -> None:
    """List the secrets by name, without what they are."""
    answer = client.get("/secrets", {"namespace": namespace})
    show(answer, lambda: write_table(answer["items"], ("name", "key_id", "updated_at"), empty="no secrets"))


@secret.command()
@click.argument("name")
@NAMESPACE
@with_client
def delete(client: Client, name: str, namespace: str) -> None:
    """Delete a secret."""
    client.delete(_write_path(name, namespace))
    show({"name": name, "status": "deleted"}, f"secret {name} is deleted")


@secret.command()
@with_client
def rotate(client: Client) -> int:
    """Encrypt with the server's first key what is encrypted with another. Fails if some cannot be opened."""
    answer = client.post("/secrets/rotate")
    lost = "".join(f"\nno key of the server opens {place}" for place in answer["unreadable"])
    show(answer, f"{answer['rotated']} secrets were encrypted anew{lost}")
    return int(bool(lost))


@secret.command("new-key")
@json_option
def make_key() -> None:
    """Print a new key for ROTA_SECRET_KEY, or for a line of the file that ROTA_SECRET_KEY_FILE names."""
    key = write_new_key()
    show({"key": key}, key)


def _read_value(file: Path | None) -> str:
    try:
        if file is not None:
            return file.read_text(encoding="utf-8")
        if sys.stdin.isatty():
            return str(click.prompt("Value", hide_input=True))
        # The line break that `echo` adds is not meant.
        return sys.stdin.read().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput.of([FieldError(str(file or "standard input"), f"cannot be read: {problem}")]) from None


def _write_path(name: str, namespace: str) -> str:
    return f"/secrets/{quote(name, safe='')}?namespace={quote(namespace, safe='')}"
