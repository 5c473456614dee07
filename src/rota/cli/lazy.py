"""Groups whose commands are loaded when they are called: `rota --help` need not import a web server."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, where it is (`module:attribute`) and one line about it."""

    name: str
    place: str
    about: str

    def load(self) -> click.Command:
        module, _, attribute = self.place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.place} is not a command")
        return command


class LazyGroup(click.Group):
    """A group that knows its commands by a table."""

    def __init__(self, *args: Any, entries: Iterable[Entry] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self._entries = {entry.name: entry for entry in entries}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._entries.get(cmd_name)
        return entry.load() if entry else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.about) for entry in self._entries.values()])
