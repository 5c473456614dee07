"""A node on its start tells the others of itself, and finds out whether it shares their database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import structlog

from rota.domain.errors import Conflict

log = structlog.get_logger(__name__)

ANSWER_SECONDS = 5.0
OTHER_DATABASE = "other_database"


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who this node is, and what it shows to the others."""

    node_id: str
    name: str
    url: str
    token: str = ""


async def introduce(node: Introduction, servers: Sequence[str]) -> bool:
    """Tells the first of these that answers; False if none did. Raises Conflict if they have another database."""
    headers = {"Authorization": f"Bearer {node.token}"} if node.token else {}
    body = {"node_id": node.node_id, "name": node.name, "address": node.url}
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        for server in servers:
            if server == node.url:
                continue
            try:
                async with session.post(f"{server}/api/v1/join", json=body) as answer:
                    told = await answer.json()
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                log.info("node_unreachable", server=server, reason=str(error) or type(error).__name__)
                continue
            if answer.status != 200:
                log.warning("join_refused", server=server, status=answer.status, reason=told.get("detail"))
                continue
            if told["status"] != "joined":
                raise Conflict(
                    f"the node at {server} has another database than this one: give both the same database_url",
                    code=OTHER_DATABASE,
                )
            log.info("joined", server=server, leader=told["leader"])
            return True
    return False
