"""The HTTP server as one part among others: it leaves signals alone and says when it listens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from rota.app.connections import StreamingHttp, StreamingWebSocket
from rota.domain.errors import FieldError, InvalidInput, Unavailable

BACKLOG = 2048
# Long polls and streams end with the server; who waits on them asks again elsewhere.
SHUTDOWN_SECONDS = 2
# Nobody has much to say over a WebSocket.
MOST_MESSAGE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What HTTPS takes."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Raises InvalidInput for files that cannot be used."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or str(error)
            raise InvalidInput.of(
                [FieldError("tls_cert", f"{self.certificate} and {self.key} cannot be used: {reason}")]
            ) from error


class HttpServer:
    """Serves an application on a socket that is bound at once, so that a port in use is known before anything else."""

    def __init__(self, host: str, port: int, tls: TlsFiles | None = None) -> None:
        if tls is not None:
            tls.check()
        self._tls = tls
        self._socket = _bind(host, port)
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where browsers and clients on this machine reach it."""
        host, port = self._socket.getsockname()[:2]
        if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            host = "127.0.0.1"
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def protocol(self) -> int:
        """What the socket speaks."""
        return self._socket.proto

    async def run(self, app: ASGIApp, listening: asyncio.Event) -> None:
        """Serves until `stop`."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            loop="asyncio",
            http=StreamingHttp,
            ws=StreamingWebSocket,
            ws_max_size=MOST_MESSAGE_BYTES,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            ssl_certfile=None if self._tls is None else self._tls.certificate,
            ssl_keyfile=None if self._tls is None else self._tls.key,
        )
        self._server = _Server(config, listening)
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Gives the port back, whether it was served or not."""
        self._socket.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listening: asyncio.Event) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise Unavailable(f"there is no address {host}: {error.strerror}", code="port_unusable") from error
    # Only where the protocol is named does asyncio turn Nagle's algorithm off, which costs 40 ms for each answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} on {host} is in use by another program; choose another with --port"
            raise Unavailable(text, code="port_in_use") from error
        raise Unavailable(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose others with --host and --port",
            code="port_unusable",
        ) from error
    listener.setblocking(False)
    return listener
