"""How the settings say that API nodes are found. Apart, because the command line wants little else."""

from __future__ import annotations

from rota.cluster.discovery import Discovery, DiscoveryOptions, make_discovery
from rota.settings import Settings


def find_discovery(settings: Settings) -> Discovery | None:
    """The way of finding API nodes; None where they are named."""
    return None if settings.discovery == "static" else make_discovery(discovery_options(settings))


def discovery_options(settings: Settings) -> DiscoveryOptions:
    """How API nodes are found."""
    return DiscoveryOptions(
        strategy=settings.discovery,
        servers=settings.server,
        name=settings.discovery_name,
        port=settings.discovery_port,
        address=settings.discovery_address,
        key=settings.discovery_key,
        kubernetes_url=settings.kubernetes_url,
        kubernetes_namespace=settings.kubernetes_namespace,
        kubernetes_token_file=settings.kubernetes_token_file,
        kubernetes_ca_file=settings.kubernetes_ca_file,
    )
