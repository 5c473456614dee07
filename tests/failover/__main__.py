"""`python -m tests.failover`: the long form, with a report."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.failover.scenario import survive
from tests.servers.patroni import PatroniCluster

KILLS = 10


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="how often the database's leader is killed")
    options = parser.parse_args()
    cluster = PatroniCluster()
    with tempfile.TemporaryDirectory(prefix="rota-failover-", dir="/tmp") as folder:
        cluster.start()
        try:
            faults = asyncio.run(survive(cluster, Path(folder), options.kills, _say))
        finally:
            cluster.stop()
    for fault in faults:
        _say(f"FAULT {fault}")
    _say("every acknowledged job is there, every tick fired once, nothing is stranded" if not faults else "NOT well")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
