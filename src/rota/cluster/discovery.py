"""Finding API nodes: for workers, for the command line, and for nodes that join."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rota.domain.errors import FieldError, InvalidInput, Unavailable

STRATEGIES = ("static", "dns", "kubernetes", "gossip")
# The modules need what not everybody installs, so each is loaded only where it is asked for.
MODULES = {
    "dns": ("rota.cluster.dns", "DnsDiscovery"),
    "kubernetes": ("rota.cluster.endpoints", "EndpointDiscovery"),
    "gossip": ("rota.cluster.gossip", "GossipDiscovery"),
}
EXTRA = "discovery"


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """How API nodes are found, and under which name."""

    strategy: str = "static"
    servers: tuple[str, ...] = ()
    # A DNS name, a Kubernetes service, or the value of the Serf tag `role`.
    name: str = "rota"
    # Where they listen, if whoever is asked does not tell.
    port: int = 8080
    # Whom to ask: a resolver, or a Serf agent; empty: the usual one.
    address: str = ""
    # What the Serf agent wants to be shown.
    key: str = ""
    kubernetes_url: str = ""
    kubernetes_namespace: str = "default"
    kubernetes_token_file: str = ""
    kubernetes_ca_file: str = ""


class Discovery(Protocol):
    """Knows where API nodes are now."""

    async def find(self) -> Sequence[str]:
        """Their addresses, in a stable order. Raises Unavailable when nobody can tell, or there are none."""
        ...


class StaticDiscovery:
    """The addresses that were given."""

    def __init__(self, options: DiscoveryOptions) -> None:
        self._servers = options.servers

    async def find(self) -> Sequence[str]:
        return self._servers


def make_discovery(options: DiscoveryOptions) -> Discovery:
    """The way of finding nodes that these options name. Raises InvalidInput where a package is missing."""
    if options.strategy == "static":
        return StaticDiscovery(options)
    module, name = MODULES[options.strategy]
    try:
        made: Discovery = getattr(importlib.import_module(module), name)(options)
    except ModuleNotFoundError as error:
        reason = f"{options.strategy} needs the package {error.name}: install rota[{EXTRA}]"
        raise InvalidInput.of([FieldError("discovery", reason)]) from error
    return made


def write_urls(places: Sequence[tuple[str, int]], what: str, scheme: str = "http") -> list[str]:
    """Addresses of (host, port), sorted. Raises Unavailable where there are none."""
    if not places:
        raise Unavailable(f"{what} names no API node")
    return [f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host, port in sorted(set(places))]


def split_address(given: str, usual_host: str, usual_port: int) -> tuple[str, int]:
    """Host and port of `host:port`, where either may be missing. Raises InvalidInput."""
    host, colon, port = given.rpartition(":")
    if not colon:
        host, port = given, ""
    if port and not port.isdigit():
        raise InvalidInput.of([FieldError("discovery_address", f"{given!r} is not allowed; send host:port")])
    return host.strip("[]") or usual_host, int(port or usual_port)
