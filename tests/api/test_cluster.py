"""What the API tells of the cluster, and of its own health."""

from __future__ import annotations

from rota.api.options import ApiOptions
from rota.cluster.member import Member, MemberOptions
from rota.observability.outcomes import STEP_SECONDS, WINDOW_SECONDS, Outcomes
from rota.store.database import Database
from tests.api.server import Server, open_server


def make_member(database: Database, name: str, *roles: str) -> Member:
    options = MemberOptions(name, f"http://{name}:8080", roles)
    return Member(database, options, measure=lambda: {"memory_bytes": 1})


async def test_nodes_and_leader(server: Server):
    nobody = await server.get("/debug/cluster")
    assert (nobody["leader"], nobody["nodes"], nobody["term"]) == (None, [], 0)
    one = make_member(server.database, "one", "api", "scheduler")
    two = make_member(server.database, "two", "api")
    await one.run_once()
    await two.run_once()
    told = await server.get("/debug/cluster")
    assert (told["leader"]["name"], told["leader"]["term"], told["term"]) == ("one", 1, 1)
    assert sorted((node["name"], node["status"], node["is_leader"]) for node in told["nodes"]) == [
        ("one", "active", True),
        ("two", "active", False),
    ]
    assert all(node["report"] == {"memory_bytes": 1} for node in told["nodes"])
    assert all(node["lag_seconds"] < 60 for node in told["nodes"])


async def test_a_node_that_shares_the_database_has_joined(server: Server):
    member = make_member(server.database, "one", "api", "scheduler")
    await member.run_once()
    for reference in (member.node_id, "one"):
        told = await server.post("/join", {"node_id": reference, "address": "http://one:8080"})
        assert (told["status"], told["leader"]) == ("joined", "one")


async def test_a_node_that_is_not_heard_of_is_joining(server: Server):
    body = {"node_id": "node-2", "address": "node2:7000"}
    assert (await server.post("/join", body))["status"] == "joining"
    told = await server.post("/join", body)
    assert [(node["name"], node["status"]) for node in told["nodes"]] == [("node-2", "joining")]
    refused = await server.call("POST", "/join", {"address": "node2:7000"})
    assert (refused.status, refused.json["errors"][0]["field"]) == (422, "node_id")


async def test_health_tells_of_the_node(server: Server):
    member = make_member(server.database, "one", "scheduler")
    async with open_server(server.database.options.url, ApiOptions(node=member)) as other:
        assert (await other.get("/health"))["role"] == "follower"
        await member.run_once()
        health = await other.get("/health")
    assert (health["node"], health["role"], health["term"]) == ("one", "leader", 1)
    assert 0 < health["memory"]["utilization_percent"] < 100


async def test_too_many_failures_are_unhealthy(database_url: str):
    now = 0.0
    outcomes = Outcomes(lambda: now)
    async with open_server(database_url, ApiOptions(outcomes=outcomes, failure_threshold=0.1)) as server:
        outcomes.add(10, are_failures=True)
        assert (await server.get("/health"))["status"] == "healthy", "ten outcomes say nothing of a rate"
        now = STEP_SECONDS * 2
        outcomes.add(40, are_failures=False)
        answer = await server.call("GET", "/health")
        assert (answer.status, answer.json["failures"]["rate"]) == (503, 0.2)
        assert answer.json["reasons"] == ["10 of the last 50 tasks failed"]
        now = WINDOW_SECONDS + 1
        assert (await server.get("/health"))["failures"]["finished"] == 40
        # It is the service that is not well; probes ask whether it can be reached.
        assert (await server.get("/readyz"))["status"] == "ok"
