"""Which addresses a user's request may reach: public ones, and private ones only where an operator allows them."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Ranges that carry an IPv4 address in their last 32 bits: NAT64 and the ancient IPv4-compatible form.
EMBEDDING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
# Not public either, though not every version of the standard library says so.
ALSO_PRIVATE: tuple[Network, ...] = (
    ipaddress.IPv4Network("0.0.0.0/8"),
    ipaddress.IPv4Network("100.64.0.0/10"),
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("198.18.0.0/15"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
    ipaddress.IPv6Network("fec0::/10"),
    ipaddress.IPv6Network("2001::/23"),
)


class ForbiddenAddressError(Exception):
    """The address lies in a range that tasks may not reach; the message says how it could be allowed."""

    def __init__(self, host: str, address: str) -> None:
        shown = host if host == address else f"{host} ({address})"
        super().__init__(
            f"{shown} is not a public address; an operator can allow its range for HTTP tasks with ROTA_HTTP_ALLOW"
        )


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts if text.strip())


def unwrap(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    if inner is None and any(address in network for network in EMBEDDING):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def is_public(address: Address) -> bool:
    """Whether the address, seen through its wrappings, is one of the public internet."""
    inner = unwrap(address)
    if not inner.is_global or inner.is_multicast or inner.is_reserved:
        return False
    return not any(inner in network for network in ALSO_PRIVATE if network.version == inner.version)


class AddressPolicy:
    """Decides by address, never by name, so that a name which changes its address gains nothing."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = parse_networks(allowed)

    def permits(self, text: str) -> bool:
        address = ipaddress.ip_address(text)
        return is_public(address) or any(
            candidate in network
            for candidate in {address, unwrap(address)}
            for network in self._allowed
            if network.version == candidate.version
        )

    def check_literal(self, host: str) -> None:
        """Refuses a host that is written as an address; names are left to the resolver."""
        try:
            is_permitted = self.permits(host)
        except ValueError:
            return
        if not is_permitted:
            raise ForbiddenAddressError(host, host)


class GuardedResolver(ThreadedResolver):
    """Resolves a name once; the connection is then made to exactly the addresses that passed."""

    def __init__(self, policy: AddressPolicy) -> None:
        super().__init__()
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        permitted = [result for result in found if self._policy.permits(result["host"])]
        if found and not permitted:
            raise ForbiddenAddressError(host, found[0]["host"])
        return permitted
