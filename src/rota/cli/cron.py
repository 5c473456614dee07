"""The command `rota cron`: when an expression fires, without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from rota.cli.options import json_option, show, write_table
from rota.domain.schedule import ScheduleSpec, parse_schedule
from rota.domain.schedule_plan import preview

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
    anchor = datetime.now(UTC).replace(microsecond=0) if start is None else start.replace(tzinfo=UTC)
    # The moment asked for may fire itself; what would have fired by now has done so.
    begin = anchor + timedelta(microseconds=1) if start is None else anchor
    spec = _read(expression, fields, anchor)
    fires = preview(spec, seed=expression, anchor=anchor, start=begin, count=count)
    rows = [{"at": _write(fire.at), "local": fire.local, "note": fire.note or ""} for fire in fires]
    show({"items": rows}, lambda: write_table(rows, ("local", ("utc", "at"), "note"), empty="never again"))


def _read(expression: str, fields: dict[str, Any], now: datetime) -> ScheduleSpec:
    is_interval = expression.strip().lower().removeprefix("@").startswith("every")
    word = "interval" if is_interval else "schedule_cron"
    return parse_schedule({word: expression, **fields}, now=now)


def _write(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
