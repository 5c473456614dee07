"""The next fires of a rule that need not be saved: what the API and `rota cron` answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from rota.domain.errors import InvalidInput
from rota.domain.schedule import SCHEDULE_FIELDS, parse_schedule
from rota.domain.schedule_fields import FieldReader
from rota.domain.schedule_plan import PreviewFire, preview

COUNT_MOST = 1000
_OWN_FIELDS = ("from", "count")
PREVIEW_FIELDS = SCHEDULE_FIELDS | {*_OWN_FIELDS}


def preview_rule(data: Mapping[str, object], *, now: datetime) -> tuple[PreviewFire, ...]:
    """The first `count` fires at or after `from` (after now, if it is left out) of a rule in the words of a schedule.

    An interval without `start_at` counts from there too. One InvalidInput names every faulty field.
    """
    reader = FieldReader(data, "")
    count = reader.read_count("count", 5, at_most=COUNT_MOST)
    rule = {name: value for name, value in data.items() if name not in _OWN_FIELDS}
    try:
        spec = parse_schedule(rule, now=None, seed=_seed(data))
    except InvalidInput as error:
        raise InvalidInput.of([*error.errors, *reader.errors]) from error
    begin = reader.read_instant("from", zone_name=spec.timezone)
    if reader.errors:
        raise InvalidInput.of(reader.errors)
    # The moment asked for may fire itself; what would have fired by now has done so.
    start = now + timedelta(microseconds=1) if begin is None else begin
    return preview(spec, seed=_seed(data), anchor=begin or now, start=start, count=count)


def _seed(data: Mapping[str, object]) -> str:
    """A rule that is not saved has no id: `H` is settled by the rule itself."""
    return str(
        next((data[name] for name in ("cron", "schedule_cron", "cron_expression", "schedule") if name in data), "")
    )
