"""One HTTP request to an address that a user named, and what its end means."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence

import aiohttp
from yarl import URL

from rota import __version__
from rota.domain.work import ErrorType
from rota.outbound.addresses import AddressPolicy, ForbiddenAddressError, GuardedResolver

CONNECT_SECONDS = 10.0
MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Never sent on to another origin.
CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


class Reply:
    """What came back."""

    __slots__ = ("body", "content_type", "headers", "is_cut", "reason", "status")

    def __init__(self, response: aiohttp.ClientResponse, body: bytes, *, is_cut: bool) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type
        self.body = body
        self.is_cut = is_cut


class Caller:
    """One pool of connections for all requests of a part of Rota."""

    def __init__(self, allowed: Iterable[str], max_response_bytes: int) -> None:
        self._policy = AddressPolicy(allowed)
        self._max_response_bytes = max_response_bytes
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(
            limit=0, resolver=GuardedResolver(self._policy), ttl_dns_cache=10, keepalive_timeout=30
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"rota/{__version__}"},
            # Proxies and credentials of this process's own environment are not the user's.
            trust_env=False,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes | None, *, follows: bool = False
    ) -> Reply:
        """Sends the request, and follows redirects only if asked to: each hop is checked anew."""
        url = URL(address)
        for _ in range(MAX_REDIRECTS + 1):
            if url.scheme not in ("http", "https") or not url.host:
                raise aiohttp.InvalidURL(url, "expected http:// or https:// and a host")
            self._policy.check_literal(url.host)
            reply = await self._send(method, url, headers, body)
            target = reply.headers.get("Location")
            if not (follows and reply.status in REDIRECTS and target):
                return reply
            following = url.join(URL(target))
            if following.origin() != url.origin():
                headers = {name: value for name, value in headers.items() if name.lower() not in CREDENTIALS}
            if reply.status == 303 or (reply.status in (301, 302) and method == "POST"):
                method, body = "GET", None
            url = following
        raise aiohttp.ClientError(f"more than {MAX_REDIRECTS} redirects")

    async def _send(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> Reply:
        if self._session is None:
            raise RuntimeError("the caller is not open")
        limit = self._max_response_bytes
        async with self._session.request(
            method,
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        ) as response:
            content = bytearray()
            # Counted after decompression: a small body that unpacks to a huge one is cut at the same place.
            async for part in response.content.iter_any():
                content += part
                if len(content) > limit:
                    response.close()
                    return Reply(response, bytes(content[:limit]), is_cut=True)
            return Reply(response, bytes(content), is_cut=False)


def is_expected(status: int, expected: Sequence[int | str]) -> bool:
    """Whether the status is one of those listed, as a number or as a class such as `2xx`."""
    return any(status == one or f"{status // 100}xx" == str(one).lower() or str(status) == str(one) for one in expected)


def explain_failure(error: Exception) -> tuple[ErrorType, str]:
    """The error type and sentence for a request that got no answer."""
    for kinds, error_type, prefix in (
        (ForbiddenAddressError, ErrorType.BAD_TASK, ""),
        ((aiohttp.InvalidURL, aiohttp.InvalidUrlClientError), ErrorType.BAD_TASK, "http.url: "),
        (
            (aiohttp.ClientConnectorDNSError, socket.gaierror),
            ErrorType.DNS_ERROR,
            "the name cannot be resolved: ",
        ),
        ((aiohttp.ClientSSLError, ssl.SSLError), ErrorType.CONNECTION_ERROR, "TLS: "),
        # Only now: errors of certificates are values' errors too.
        (ValueError, ErrorType.BAD_TASK, ""),
        (TimeoutError, ErrorType.TIMEOUT, "no complete answer in time "),
        (aiohttp.ServerDisconnectedError, ErrorType.CONNECTION_ERROR, "the server closed the connection: "),
        ((aiohttp.ClientError, OSError), ErrorType.CONNECTION_ERROR, ""),
    ):
        if isinstance(error, kinds):
            return error_type, f"{prefix}{error}".strip() or type(error).__name__
    return ErrorType.EXCEPTION, f"{type(error).__name__}: {error}"


def show_url(url: object) -> str:
    """The URL as it may stand in a log: without user, password and query."""
    try:
        shown = URL(str(url))
        return str(shown.with_user(None).with_query(None).with_fragment(None)) if shown.host else str(url)
    except ValueError:
        return str(url)
