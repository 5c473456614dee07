"""`python -m tests.chaos`: the long form, on both databases, with a report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rota.store import migrate
from tests.chaos.report import Report
from tests.chaos.scenario import weather_storm
from tests.chaos.trees import GRACE_SECONDS, cancel_trees
from tests.servers.postgres import PostgresServer

DATABASES = ("sqlite", "postgres")
# Of all databases together.
LONG_SECONDS = 600.0
MARGIN_SECONDS = 2.0


@contextlib.contextmanager
def _make_databases(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Two migrated, empty databases, gone afterwards."""
    names = ("storm", "trees")
    if kind == "sqlite":
        urls = [f"sqlite:///{folder / name}.db" for name in names]
        yield _migrate(urls)
        return
    server = PostgresServer(fast=True)
    server.start()
    try:
        yield _migrate([server.create_database(name) for name in names])
    finally:
        server.stop()


def _migrate(urls: list[str]) -> tuple[str, str]:
    for url in urls:
        migrate.upgrade(url)
    return urls[0], urls[1]


def _run(kind: str, seconds: float, seed: int) -> list[Report]:
    with (
        tempfile.TemporaryDirectory(prefix="rota-chaos-", dir="/tmp") as folder,
        _make_databases(kind, Path(folder)) as (for_storm, for_trees),
    ):
        storm = asyncio.run(weather_storm(Path(folder) / "in-storm", for_storm, seconds=seconds, seed=seed))
        _say(storm.show())
        trees, took_seconds = asyncio.run(cancel_trees(Path(folder) / "in-trees", for_trees))
        most_seconds = GRACE_SECONDS + MARGIN_SECONDS
        trees.check(took_seconds <= most_seconds, f"{took_seconds:.1f} s until all were dead; at most {most_seconds} s")
        _say(trees.show())
        return [storm, trees]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=LONG_SECONDS, help="of storm, over all databases together")
    parser.add_argument("--database", choices=DATABASES, help="only this one")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    kinds = (options.database,) if options.database else DATABASES
    reports = [report for kind in kinds for report in _run(kind, options.seconds / len(kinds), options.seed)]
    return int(any(report.faults for report in reports))


if __name__ == "__main__":
    sys.exit(main())
