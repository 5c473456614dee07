"""API nodes found by name: through a real resolver, real Serf agents, and a stub of the Kubernetes API."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from rota.cluster.discovery import DiscoveryOptions, make_discovery
from rota.domain.errors import InvalidInput, Unavailable
from tests.servers.naming import find_port, run_dnsmasq, run_serf


async def find(strategy: str, **options: Any) -> list[str]:
    return list(await make_discovery(DiscoveryOptions(strategy, **options)).find())


async def test_static_addresses_are_as_given():
    assert await find("static", servers=("http://b:1", "http://a:2")) == ["http://b:1", "http://a:2"]


async def test_dns_addresses(tmp_path: Path):
    records = ("--host-record=rota.test,10.0.0.2,fd00::2", "--host-record=rota.test,10.0.0.1")
    with run_dnsmasq(tmp_path, *records) as resolver:
        found = await find("dns", name="rota.test", port=8081, address=resolver)
        assert found == ["http://10.0.0.1:8081", "http://10.0.0.2:8081", "http://[fd00::2]:8081"]
        with pytest.raises(Unavailable, match="elsewhere"):
            await find("dns", name="elsewhere.test", address=resolver)


async def test_dns_services(tmp_path: Path):
    name = "_rota._tcp.example.test"
    records = (f"--srv-host={name},one.example.test,8080", f"--srv-host={name},two.example.test,8090")
    with run_dnsmasq(tmp_path, *records) as resolver:
        found = await find("dns", name=name, address=resolver)
    assert found == ["http://one.example.test:8080", "http://two.example.test:8090"]


async def test_a_resolver_that_is_away():
    with pytest.raises(Unavailable, match="DNS does not tell"):
        await find("dns", name="rota.test", address=f"127.0.0.1:{find_port()}")


async def test_gossip(tmp_path: Path):
    with (
        run_serf(tmp_path, "one", "-tag", "role=rota", "-tag", "port=8085") as (bind, rpc),
        run_serf(tmp_path, "two", "-tag", "role=rota", join=bind),
        run_serf(tmp_path, "other", "-tag", "role=database", join=bind),
    ):
        async with asyncio.timeout(20):
            found: list[str] = []
            while len(found) < 2:
                found = await find("gossip", name="rota", port=8070, address=rpc)
        assert found == ["http://127.0.0.1:8070", "http://127.0.0.1:8085"]
        with pytest.raises(Unavailable, match="role=nobody"):
            await find("gossip", name="nobody", address=rpc)


async def test_gossip_with_a_key(tmp_path: Path):
    configuration = tmp_path / "serf.json"
    configuration.write_text('{"rpc_auth": "a-key", "tags": {"role": "rota"}}')
    with run_serf(tmp_path, "guarded", f"-config-file={configuration}") as (_bind, rpc):
        assert await find("gossip", name="rota", address=rpc, key="a-key") == ["http://127.0.0.1:8080"]
        with pytest.raises(Unavailable, match="refuses"):
            await find("gossip", name="rota", address=rpc, key="another")


async def test_an_agent_that_is_away():
    with pytest.raises(Unavailable, match="Serf agent"):
        await find("gossip", address=f"127.0.0.1:{find_port()}")


def describe_slice(*endpoints: dict[str, Any], ports: Any) -> dict[str, Any]:
    return {"addressType": "IPv4", "endpoints": list(endpoints), "ports": ports}


async def test_kubernetes(tmp_path: Path):
    asked: list[tuple[str, str | None, str | None]] = []
    slices = [
        describe_slice(
            {"addresses": ["10.1.0.2"], "conditions": {"ready": True}},
            {"addresses": ["10.1.0.3"], "conditions": {"ready": False}},
            ports=[{"name": "metrics", "port": 9090}, {"name": "http", "port": 8080}],
        ),
        describe_slice({"addresses": ["10.1.0.1"], "conditions": {}}, ports=None),
    ]

    async def list_slices(request: web.Request) -> web.Response:
        header = request.headers.get("Authorization")
        asked.append((request.path, request.query.get("labelSelector"), header))
        if header != "Bearer a-token":
            return web.json_response({"kind": "Status", "message": "forbidden"}, status=403)
        return web.json_response({"kind": "EndpointSliceList", "items": slices})

    application = web.Application()
    application.router.add_get("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", list_slices)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    token = tmp_path / "token"
    token.write_text("a-token\n")
    options = {"kubernetes_url": f"http://127.0.0.1:{runner.addresses[0][1]}", "kubernetes_token_file": str(token)}
    try:
        found = await find("kubernetes", name="rota-api.prod", port=8070, **options)
        assert found == ["http://10.1.0.1:8070", "http://10.1.0.2:8080"]
        path = "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices"
        assert asked == [(path, "kubernetes.io/service-name=rota-api", "Bearer a-token")]
        slices.clear()
        with pytest.raises(Unavailable, match="names no API node"):
            await find("kubernetes", **options)
        token.write_text("a-stale-one")
        with pytest.raises(Unavailable, match="403: forbidden"):
            await find("kubernetes", **options)
    finally:
        await runner.cleanup()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "msgpack", None)
    monkeypatch.delitem(sys.modules, "rota.cluster.gossip", raising=False)
    with pytest.raises(InvalidInput) as caught:
        make_discovery(DiscoveryOptions("gossip"))
    assert "msgpack" in caught.value.errors[0].reason
    assert "rota[discovery]" in caught.value.errors[0].reason


@pytest.mark.parametrize("address", ["host:port", "host:-1"])
async def test_an_address_without_a_port_number(address: str):
    with pytest.raises(InvalidInput, match="discovery_address"):
        await find("dns", address=address)
