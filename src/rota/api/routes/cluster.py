"""The cluster: who is in it, who leads, and nodes that come."""

from __future__ import annotations

import os
import time

from fastapi import APIRouter, Response

from rota.api.answers import answer
from rota.api.context import Api, Context
from rota.api.permissions import needs
from rota.api.requests import LimitedRoute
from rota.api.schemas.cluster import Cluster, JoinBody, Joined, Leader, Node, Replica
from rota.domain.access import Permission
from rota.domain.ids import make_uuid7
from rota.store import nodes
from rota.store.database import Transaction
from rota.store.leases import LEADER
from rota.store.nodes import NodeFacts
from rota.store.reads.cluster import ClusterState, read_cluster

router = APIRouter(tags=["service"], route_class=LimitedRoute)
# Nodes are heard of every two seconds.
LOST_AFTER_SECONDS = 10.0


@router.get("/debug/cluster", response_model=Cluster)
@needs(Permission.VIEW, everywhere=True)
async def show_cluster(api: Context) -> Response:
    """Nodes, leader, term, and how far behind everybody is."""
    return answer(make_cluster(api, await _read(api)))


@router.post("/join", response_model=Joined)
@needs(Permission.ADMINISTER, everywhere=True)
async def join(api: Context, body: JoinBody) -> Response:
    """A node says that it is there. Whether it belongs to this cluster is decided by the database that it uses:
    `joined` if it is known from there, `joining` until then."""
    name = body.name or body.node_id

    async def look(transaction: Transaction) -> bool:
        if await nodes.is_active(transaction, body.node_id, lost_after_seconds=LOST_AFTER_SECONDS):
            return True
        await nodes.announce(
            transaction, NodeFacts(make_uuid7(time.time_ns() // 1_000_000, os.urandom(10)), name, body.address)
        )
        return False

    is_joined = await api.database.transact(look)
    state = await _read(api)
    cluster = make_cluster(api, state)
    status = "joined" if is_joined else "joining"
    return answer(Joined(status=status, leader=cluster.leader.name if cluster.leader else None, nodes=cluster.nodes))


async def _read(api: Api) -> ClusterState:
    has_replicas = not api.database.is_sqlite
    return await api.database.read(
        lambda tx: read_cluster(tx, LEADER, lost_after_seconds=LOST_AFTER_SECONDS, has_replicas=has_replicas)
    )


def make_cluster(api: Api, state: ClusterState) -> Cluster:
    """The shape of what was read. The leader that is shown holds a lease that has not run out."""
    lease = state.lease if state.lease is not None and state.lease.is_live else None
    node = api.options.node
    return Cluster(
        node=node.name if node else None,
        role=node.role if node else "follower",
        term=state.lease.term if state.lease else 0,
        leader=lease
        and Leader(
            id=lease.holder,
            name=lease.holder_name or lease.holder,
            term=lease.term,
            since=lease.acquired_at,
            expires_at=lease.expires_at,
        ),
        nodes=[
            Node(
                id=row.id,
                name=row.name,
                address=row.url,
                roles=row.roles,
                status=row.status,
                is_leader=lease is not None and lease.holder == row.id,
                version=row.version,
                started_at=row.started_at,
                last_heartbeat=row.last_heartbeat,
                lag_seconds=max(0.0, (row.now - row.last_heartbeat).total_seconds()),
                report=row.report,
            )
            for row in state.nodes
        ],
        database_replicas=[Replica.model_validate(row) for row in state.replicas],
    )
