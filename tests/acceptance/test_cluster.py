"""Nodes as processes on one PostgreSQL: they find one another, and workers find them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import Process, Server, run_rota, wait_until
from tests.servers.naming import run_dnsmasq
from tests.servers.postgres import Address

StartNode = Callable[..., Server]
NAME = "_rota._tcp.cluster.test"


@pytest.fixture
def make_url(postgres: Address, postgres_template: str) -> Iterator[Callable[[], str]]:
    """Makes databases of the test's own."""
    names: list[str] = []

    def make() -> str:
        names.append(f"test_{uuid.uuid4().hex}")
        return postgres.create_database(names[-1], postgres_template)

    yield make
    for name in names:
        postgres.drop_database(name)


@pytest.fixture
def start_node(home: Path, started: list[Process]) -> StartNode:
    def begin(database_url: str, name: str, *arguments: str) -> Server:
        node = Server(home, database_url, "--node-id", name, *arguments, command="node")
        started.append(node)
        return node

    return begin


def test_a_worker_follows_the_nodes_that_it_finds(
    make_url: Callable[[], str], start_node: StartNode, home: Path, started: list[Process], tmp_path: Path
):
    url = make_url()
    first = start_node(url, "one")
    second = start_node(url, "two", "--join", first.url)
    wait_until(lambda: any(entry["message"] == "joined" for entry in second.log), "the second node to join")
    records = [f"--srv-host={NAME},127.0.0.1,{node.port}" for node in (first, second)]
    with run_dnsmasq(tmp_path, *records) as resolver:
        found = ("--discovery", "dns", "--discovery-name", NAME, "--discovery-address", resolver)
        worker = Process(home, "worker", *found, "--metrics-port", "0")
        started.append(worker)
        worker.wait_for_line("whoever dns finds")
        first.define({"name": "a", "command": "echo here"})
        first.wait_for_run(first.trigger())
        first.kill()
        second.wait_for_run(second.trigger())
        told = run_rota(
            home,
            *("cluster", "status", "--json"),
            ROTA_DISCOVERY="dns",
            ROTA_DISCOVERY_NAME=NAME,
            ROTA_DISCOVERY_ADDRESS=resolver,
        )
    cluster = json.loads(told.stdout)
    assert {node["name"] for node in cluster["nodes"]} == {"one", "two"}, told
    wait_until(lambda: (second.get("/debug/cluster")["leader"] or {}).get("name") == "two", "the other one to lead")


def test_a_node_with_another_database_is_refused(make_url: Callable[[], str], start_node: StartNode, home: Path):
    first = start_node(make_url(), "one")
    refused = run_rota(home, "node", "--port", "0", "--join", first.url, ROTA_DATABASE_URL=make_url())
    assert refused.returncode == 5, refused
    assert "another database" in refused.stderr
