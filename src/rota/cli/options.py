"""What the commands share: options that are settings, a client of the server, and output for people or programs."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from rota.app.discovery import find_discovery
from rota.client.http import Client
from rota.settings import Settings, list_settings, load_settings

F = TypeVar("F", bound=Callable[..., Any])
JSON_KEY = "rota.is_json"
DISCOVERY_SETTINGS = ("discovery", "discovery_name", "discovery_port", "discovery_address", "discovery_key")


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a command its Settings as the first argument, and a flag for each setting named."""
    infos = {info.name: info for info in list_settings()}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(*args: Any, config: Path | None, **given: Any) -> Any:
            flags = {name: given.pop(name) for name in names}
            return command(load_settings(flags, os.environ, file=config), *args, **given)

        wrapped: Callable[..., Any] = click.option(
            "--config", type=click.Path(path_type=Path, dir_okay=False), help="file of settings; default: rota.toml"
        )(run)
        for name in reversed(names):
            info = infos[name]
            wrapped = click.option(info.flag, name, metavar="VALUE", help=info.about)(wrapped)
        return wrapped

    return decorate


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command a client of the server as the first argument."""

    @functools.wraps(command)
    def run(settings: Settings, *args: Any, **given: Any) -> Any:
        return command(make_client(settings), *args, **given)

    return json_option(with_settings("server", "token")(run))


def make_client(settings: Settings) -> Client:
    """A client of the servers that are named, or found."""
    discovery = find_discovery(settings)
    servers = settings.server if discovery is None else asyncio.run(discovery.find())
    return Client(servers, token=settings.token)


def json_option(command: F) -> F:
    """The option `--json`, which `show` obeys."""

    def note(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        context.meta[JSON_KEY] = value

    option = click.option(
        "--json", is_flag=True, expose_value=False, callback=note, help="print JSON, for programs to read"
    )
    return option(command)


def is_json() -> bool:
    """Whether the command was asked for JSON."""
    return bool(click.get_current_context().meta.get(JSON_KEY))


def show(document: Any, text: str | Callable[[], str]) -> None:
    """Prints `document` as JSON if that was asked for, or else the text."""
    if is_json():
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    written = text() if callable(text) else text
    if written:
        click.echo(written)


def write_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str | tuple[str, str]], *, empty: str) -> str:
    """Aligned columns: each a key, or a pair of heading and key."""
    if not rows:
        return empty
    pairs = [(column, column) if isinstance(column, str) else column for column in columns]
    lines = [[heading.upper() for heading, _ in pairs]]
    lines += [[write_value(row.get(key)) for _, key in pairs] for row in rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(pairs))]
    return "\n".join(_join(line, widths) for line in lines)


def _join(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def write_value(value: Any) -> str:
    """A value for people: no fractions of seconds, no None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    text = str(value)
    if len(text) > 19 and text[10:11] == "T" and text.endswith("Z"):
        return text[:19].replace("T", " ") + "Z"
    return text
