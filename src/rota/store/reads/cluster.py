"""The cluster as people read it: its nodes, who leads, and how far copies of the database are behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rota.store.database import Transaction
from rota.store.dialect import REPLICAS
from rota.store.leases import Lease, read_lease
from rota.store.nodes import list_nodes


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All of it at one moment."""

    nodes: Sequence[Any]
    lease: Lease | None
    replicas: Sequence[Any]


async def read_cluster(
    transaction: Transaction, lease_name: str, *, lost_after_seconds: float, has_replicas: bool
) -> ClusterState:
    """Nodes, the lease of this name, and what the database's server tells of its copies."""
    return ClusterState(
        await list_nodes(transaction, lost_after_seconds=lost_after_seconds),
        await read_lease(transaction, lease_name),
        await transaction.rows(REPLICAS) if has_replicas else (),
    )
