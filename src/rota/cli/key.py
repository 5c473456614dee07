"""Commands on API keys: at a server, or with `--local` straight in its database."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from rota.app import keys
from rota.cli.options import json_option, show, with_settings, write_table
from rota.client.http import Client
from rota.domain.access import EVERY_NAMESPACE, Role
from rota.domain.api_key import NewKey
from rota.domain.errors import FieldError, InvalidInput
from rota.settings import Settings
from rota.settings.values import read_duration
from rota.store.reads.pages import PageRequest

COLUMNS = ("id", "name", "prefix", "role", "namespaces", "status", "expires_at", "last_used_at")
MOST_SHOWN = 500
read_life = read_duration(1, 100 * 366 * 86_400)


def with_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command its settings, and a client of the server unless `--local` was given."""

    @functools.wraps(command)
    def run(settings: Settings, *args: Any, is_local: bool, **given: Any) -> Any:
        client = None if is_local else Client(settings.server, token=settings.token)
        return command(settings, client, *args, **given)

    about = "in the database itself, without a server, such as for the first key"
    wrapped = click.option("--local", "is_local", is_flag=True, help=about)(run)
    return json_option(with_settings("server", "token", "data_dir", "database_url")(wrapped))


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command()
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), default="viewer", show_default=True)
@click.option("--namespace", "namespaces", multiple=True, help="only in this one; may be repeated; default: all")
@click.option("--expires", metavar="DURATION", help="when it ends, such as 90d; default: never")
@with_place
def create(
    settings: Settings, client: Client | None, name: str, role: str, namespaces: tuple[str, ...], expires: str | None
) -> None:
    """Make a key, and show it: this once."""
    wanted = NewKey(name, Role(role), namespaces or (EVERY_NAMESPACE,), _read_life(expires))
    if client is None:
        created = asyncio.run(keys.create_key(settings, wanted))
        answer = {"id": created.id, "name": name, "role": role, "key": created.key}
    else:
        body = {"name": name, "role": role, "namespaces": wanted.namespaces}
        answer = client.post("/api-keys", body | {"expires_in_seconds": wanted.expires_in_seconds})
    # Nothing but the key goes to standard output, so that a script can keep it.
    click.echo(f"{name} is {role}. The key is shown only now:", err=True)
    show(answer, answer["key"])


@key.command("list")
@click.option("--revoked", is_flag=True, help="also those that were revoked")
@with_place
def list_keys(settings: Settings, client: Client | None, revoked: bool) -> None:
    """List the keys, the newest first."""
    if client is None:
        page = PageRequest(MOST_SHOWN)
        rows = asyncio.run(keys.list_keys(settings, page, includes_revoked=revoked)).rows
        items = [{name: _write(value) for name, value in row._mapping.items()} for row in rows]
    else:
        items = client.get("/api-keys", {"revoked": revoked, "limit": MOST_SHOWN})["items"]
    show({"items": items}, lambda: write_table(items, COLUMNS, empty="no keys"))


@key.command()
@click.argument("reference", metavar="KEY")
@with_place
def revoke(settings: Settings, client: Client | None, reference: str) -> None:
    """Revoke a key, named by its id or its name."""
    if client is None:
        asyncio.run(keys.revoke_key(settings, reference))
    else:
        client.delete(f"/api-keys/{quote(reference, safe='')}")
    show({"name": reference, "status": "revoked"}, f"{reference} is revoked")


def _write(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else value


def _read_life(given: str | None) -> float | None:
    try:
        return None if given is None else read_life(given)
    except ValueError as problem:
        raise InvalidInput.of([FieldError("--expires", f"{given!r} is not allowed; {problem}")]) from None
