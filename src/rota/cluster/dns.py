"""API nodes by DNS: an SRV record where the name begins with an underscore, A and AAAA records otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import dns.asyncresolver
import dns.exception
import dns.resolver

from rota.cluster.discovery import DiscoveryOptions, split_address, write_urls
from rota.domain.errors import Unavailable

ANSWER_SECONDS = 5.0


class DnsDiscovery:
    """Asks the system's resolver, or the one that was named."""

    def __init__(self, options: DiscoveryOptions) -> None:
        self._options = options

    async def find(self) -> Sequence[str]:
        name = self._options.name
        try:
            resolver = self._make_resolver()
            if name.startswith("_"):
                places = await self._find_services(resolver)
            else:
                places = [(host, self._options.port) for host in await self._find_addresses(resolver, name)]
        except dns.exception.DNSException as error:
            raise Unavailable(f"DNS does not tell where {name} is: {error}") from error
        return write_urls(places, f"the DNS name {name}")

    def _make_resolver(self) -> dns.asyncresolver.Resolver:
        if not self._options.address:
            return dns.asyncresolver.Resolver()
        resolver = dns.asyncresolver.Resolver(configure=False)
        host, port = split_address(self._options.address, "127.0.0.1", 53)
        resolver.nameservers = [host]
        resolver.port = port
        return resolver

    async def _find_services(self, resolver: dns.asyncresolver.Resolver) -> list[tuple[str, int]]:
        answer = await resolver.resolve(self._options.name, "SRV", lifetime=ANSWER_SECONDS)
        return [(record.target.to_text(omit_final_dot=True), record.port) for record in answer]

    async def _find_addresses(self, resolver: dns.asyncresolver.Resolver, name: str) -> list[str]:
        found: list[str] = []
        for kind in ("A", "AAAA"):
            try:
                answer = await resolver.resolve(name, kind, lifetime=ANSWER_SECONDS)
            except dns.resolver.NoAnswer:
                continue
            found += [record.address for record in answer]
        return found
