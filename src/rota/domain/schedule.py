"""The rule that creates runs: what a schedule says, how it is read and how it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Literal, get_args

from rota.domain.cron import DstGap, DstOverlap, parse_cron, to_utc
from rota.domain.errors import InvalidInput
from rota.domain.schedule_calendar import WEEKDAYS, normalize_exclusion
from rota.domain.schedule_fields import FieldReader

Misfire = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other"]

CATCH_UP_MOST = 1000
_CRON_WORDS = ("schedule_cron", "cron", "cron_expression", "schedule")
_INTERVAL_WORDS = ("interval_seconds", "interval")
_RUN_AT_WORDS = ("run_at", "timestamp")
_END_WORDS = ("end_at", "last_date")
_ONE_OF = "schedule_cron, interval_seconds or run_at"


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Exactly one of `cron`, `interval_seconds` and `run_at`, with its policies; instants are in UTC."""

    cron: str | None = None
    interval_seconds: float | None = None
    run_at: datetime | None = None
    timezone: str = "UTC"
    misfire: Misfire = "latest"
    grace_seconds: float = 60.0
    catch_up_limit: int = 100
    overlap: Overlap = "allow"
    jitter_seconds: float = 0.0
    dst_gap: DstGap = "after"
    dst_overlap: DstOverlap = "first"
    start_at: datetime | None = None
    end_at: datetime | None = None
    calendar: tuple[str, ...] = ()
    pause_after_failures: int | None = None


# Every word that a schedule may carry: the fields under their public names, and the older systems' words.
SCHEDULE_FIELDS = frozenset(
    {*_CRON_WORDS, *_INTERVAL_WORDS, *_RUN_AT_WORDS, *_END_WORDS} | {field.name for field in fields(ScheduleSpec)}
)


def parse_schedule(data: Mapping[str, object], *, path: str = "", now: datetime | None, seed: str = "") -> ScheduleSpec:
    """Read a schedule; one InvalidInput names every faulty field.

    `now` decides whether `run_at` is already past; None reads a schedule that was accepted before.
    `seed` is the schedule's id if known: it settles `H` and `~` in the check for impossible dates.
    """
    reader = FieldReader(data, path)
    reader.refuse_unknown(SCHEDULE_FIELDS)
    zone_name = reader.read_zone("timezone", "UTC")
    spec = ScheduleSpec(
        cron=reader.read_text(*_CRON_WORDS),
        interval_seconds=reader.read_duration(*_INTERVAL_WORDS, at_least=1.0),
        run_at=reader.read_instant(*_RUN_AT_WORDS, zone_name=zone_name),
        timezone=zone_name,
        misfire=reader.read_choice("misfire", get_args(Misfire), "latest"),
        grace_seconds=reader.read_number("grace_seconds", 60.0),
        catch_up_limit=reader.read_count("catch_up_limit", 100, at_most=CATCH_UP_MOST),
        overlap=reader.read_choice("overlap", get_args(Overlap), "allow"),
        jitter_seconds=reader.read_number("jitter_seconds", 0.0),
        dst_gap=reader.read_choice("dst_gap", get_args(DstGap), "after"),
        dst_overlap=reader.read_choice("dst_overlap", get_args(DstOverlap), "first"),
        start_at=reader.read_instant("start_at", zone_name=zone_name),
        end_at=reader.read_instant(*_END_WORDS, zone_name=zone_name, is_end=True),
        calendar=_read_calendar(reader),
        pause_after_failures=reader.read_optional_count("pause_after_failures"),
    )
    _check_rule(reader, spec, seed)
    _check_span(reader, spec, now)
    if reader.errors:
        raise InvalidInput.of(reader.errors)
    return spec


def schedule_to_dict(spec: ScheduleSpec) -> dict[str, object]:
    """The schedule in its public words, JSON-ready, without what is default; parse_schedule reads it back."""
    written: dict[str, object] = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if value == field.default:
            continue
        name = "schedule_cron" if field.name == "cron" else field.name
        if isinstance(value, datetime):
            written[name] = to_utc(value).isoformat().replace("+00:00", "Z")
        else:
            written[name] = list(value) if isinstance(value, tuple) else value
    return written


def _check_rule(reader: FieldReader, spec: ScheduleSpec, seed: str) -> None:
    groups = (_CRON_WORDS, _INTERVAL_WORDS, _RUN_AT_WORDS)
    given = [word for group in groups for word in group if reader.has(word)]
    if not given:
        reader.fault(_CRON_WORDS[0], f"nothing says when to run; send one of {_ONE_OF}")
    if len(given) > 1:
        for word in given:
            others = " and ".join(other for other in given if other != word)
            reader.fault(word, f"conflicts with {others}; send exactly one of {_ONE_OF}")
    if spec.cron is not None:
        word = next(word for word in _CRON_WORDS if reader.has(word))
        try:
            parse_cron(spec.cron, seed=seed, field=reader.path_of(word))
        except InvalidInput as faults:
            reader.errors.extend(faults.errors)


def _check_span(reader: FieldReader, spec: ScheduleSpec, now: datetime | None) -> None:
    if spec.start_at is not None and spec.end_at is not None and spec.end_at < spec.start_at:
        word = reader.word_of(_END_WORDS)
        reader.fault(word, "lies before start_at; send a later instant, or an earlier start_at")
    if all(reader.has(word) for word in _END_WORDS):
        reader.fault("last_date", "means the same as end_at; send only one of them")
    if spec.run_at is None:
        return
    word = reader.word_of(_RUN_AT_WORDS)
    is_before = spec.start_at is not None and spec.run_at < spec.start_at
    if is_before or (spec.end_at is not None and spec.run_at > spec.end_at):
        reader.fault(word, "lies outside start_at and end_at; send an instant between them, or leave them out")
    if now is not None and spec.misfire == "skip" and spec.run_at < now:
        reader.fault(word, "is already past and misfire is skip; send a later instant, or misfire latest to run now")


def _read_calendar(reader: FieldReader) -> tuple[str, ...]:
    found = []
    for number, text in reader.read_texts("calendar"):
        try:
            found.append(normalize_exclusion(text))
        except ValueError as problem:
            reader.fault(f"calendar[{number}]", str(problem))
    if set(found) >= set(WEEKDAYS):
        reader.fault("calendar", "excludes every day of the week; leave at least one, or pause the schedule")
    return tuple(dict.fromkeys(found))


def initial_cursor(spec: ScheduleSpec, now: datetime) -> datetime:
    """Where a new, resumed or edited schedule starts to decide: only a single instant may lie in the past."""
    if spec.run_at is not None:
        return min(to_utc(now), spec.run_at - timedelta(microseconds=1))
    return to_utc(now)
