"""The short form: one leader dies. `make failover` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.scenario import survive
from tests.servers.patroni import PatroniCluster, can_start

pytestmark = pytest.mark.skipif(
    not can_start(), reason="there is no Patroni or etcd here: `make servers` installs them"
)


@pytest.mark.timeout(300)
async def test_what_was_acknowledged_survives_the_death_of_the_leader(tmp_path: Path):
    cluster = PatroniCluster()
    cluster.start()
    told: list[str] = []
    try:
        assert await survive(cluster, tmp_path, 1, told.append) == []
    finally:
        cluster.stop()
    assert any("without service" in line for line in told)
