"""Cron: what an expression says on the wall clock, and when that happens in a time zone."""

from __future__ import annotations

from rota.domain.cron.expression import Cron, is_hashed, load_cron, parse_cron
from rota.domain.cron.fires import CronFire, DstGap, DstOverlap, fires_after, next_fire
from rota.domain.cron.zones import load_zone, to_utc

__all__ = [
    "Cron",
    "CronFire",
    "DstGap",
    "DstOverlap",
    "fires_after",
    "is_hashed",
    "load_cron",
    "load_zone",
    "next_fire",
    "parse_cron",
    "to_utc",
]
