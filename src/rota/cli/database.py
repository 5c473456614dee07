"""Commands on the database's schema."""

from __future__ import annotations

import click

from rota.app.files import hold_file
from rota.cli.options import json_option, show, with_settings
from rota.settings import Settings, choose_database_url, find_database_file, hide_password
from rota.store import migrate

PLACE = ("data_dir", "database_url")


@click.group("db")
def database() -> None:
    """Upgrade, downgrade and check the database."""


@database.command()
@click.option("--to", "revision", default="head", help="a version, if not the newest")
@json_option
@with_settings(*PLACE)
def upgrade(settings: Settings, revision: str) -> None:
    """Bring the database up to date. Several nodes may do this at once."""
    url = choose_database_url(settings)
    with hold_file(find_database_file(url)):
        migrate.upgrade(url, revision)
    _show_version(url)


@database.command()
@click.argument("revision")
@click.confirmation_option(prompt="This deletes what older versions do not know. Go on?")
@json_option
@with_settings(*PLACE)
def downgrade(settings: Settings, revision: str) -> None:
    """Take the database back to a version (`-1`: one step, `base`: nothing is left)."""
    url = choose_database_url(settings)
    with hold_file(find_database_file(url)):
        migrate.downgrade(url, revision)
    _show_version(url)


@database.command()
@json_option
@with_settings(*PLACE)
def current(settings: Settings) -> None:
    """Show the version of the database and the one that this Rota needs."""
    _show_version(choose_database_url(settings))


@database.command()
@json_option
@with_settings(*PLACE)
def check(settings: Settings) -> None:
    """Succeed only if this Rota can work with the database as it is."""
    url = choose_database_url(settings)
    migrate.check(url)
    _show_version(url)


def _show_version(url: str) -> None:
    version = migrate.read_version(url)
    facts = {
        "database": hide_password(url),
        "current": version.current,
        "needed": version.needed,
        "is_right": version.is_right,
    }
    state = "up to date" if version.is_right else f"this Rota needs {version.needed}: run `rota db upgrade`"
    show(facts, f"{facts['database']} is at version {version.current or 'none'}, {state}")
