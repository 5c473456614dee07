"""API nodes behind a Kubernetes service: the ready addresses of its EndpointSlices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from rota.cluster.discovery import DiscoveryOptions, write_urls
from rota.domain.errors import Unavailable
from rota.outbound.pod import make_tls, read_authorization

# Where a pod finds the API.
USUAL_URL = "https://kubernetes.default.svc"
ANSWER_SECONDS = 10.0


class EndpointDiscovery:
    """Asks the Kubernetes API with the pod's own token. The service is `name`, or `name.namespace`."""

    def __init__(self, options: DiscoveryOptions) -> None:
        self._options = options
        self._service, _, namespace = options.name.partition(".")
        self._namespace = namespace or options.kubernetes_namespace

    async def find(self) -> Sequence[str]:
        base = (self._options.kubernetes_url or USUAL_URL).rstrip("/")
        url = f"{base}/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices"
        query = {"labelSelector": f"kubernetes.io/service-name={self._service}"}
        try:
            async with self._open() as session, session.get(url, params=query) as answer:
                document = await answer.json()
                if answer.status != 200:
                    raise Unavailable(f"{url} answered {answer.status}: {document.get('message', '')}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"{url} does not answer: {error}") from error
        places = [place for entry in document.get("items") or () for place in self._read_slice(entry)]
        return write_urls(places, f"the service {self._service} in {self._namespace}")

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=make_tls(self._options.kubernetes_ca_file)),
            headers=read_authorization(self._options.kubernetes_token_file),
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
        )

    def _read_slice(self, entry: Mapping[str, Any]) -> list[tuple[str, int]]:
        ports = {str(port.get("name") or ""): port.get("port") for port in entry.get("ports") or ()}
        port = next((ports[name] for name in ("http", "api", "") if ports.get(name)), None)
        return [
            (address, int(port or self._options.port))
            for endpoint in entry.get("endpoints") or ()
            # Unknown counts as ready.
            if (endpoint.get("conditions") or {}).get("ready") is not False
            for address in endpoint.get("addresses") or ()
        ]
