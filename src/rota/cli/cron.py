"""The command `rota cron`: when an expression fires, without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from rota.cli.options import json_option, show, write_table
from rota.domain.schedule_preview import preview_rule

DST_GAP = click.Choice(("after", "skip", "before"))
DST_OVERLAP = click.Choice(("first", "second", "both"))


@click.command()
@click.argument("expression")
@click.option("--tz", "timezone", default="UTC", show_default=True, help="time zone, such as Europe/Riga")
@click.option("--count", default=5, show_default=True, type=click.IntRange(1, 1000), help="how many fires to show")
@click.option("--from", "start", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]), help="UTC; default: now")
@click.option("--dst-gap", default="after", type=DST_GAP, help="a time that the clock jumps over")
@click.option("--dst-overlap", default="first", type=DST_OVERLAP, help="a time that comes twice")
@json_option
def cron(expression: str, count: int, start: datetime | None, **fields: Any) -> None:
    """Show when a cron expression (or `every 90s`) fires, and what changes of the clock do to it.

    Put the expression in quotes: rota cron "0 2 * * MON-FRI" --tz Europe/Riga
    """
    is_interval = expression.strip().lower().removeprefix("@").startswith("every")
    rule = {"interval" if is_interval else "cron": expression, **fields, "count": count}
    if start is not None:
        rule["from"] = start.replace(tzinfo=UTC)
    fires = preview_rule(rule, now=datetime.now(UTC).replace(microsecond=0))
    rows = [{"at": _write(fire.at), "local": fire.local, "note": fire.note or ""} for fire in fires]
    show({"items": rows}, lambda: write_table(rows, ("local", ("utc", "at"), "note"), empty="never again"))


def _write(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
