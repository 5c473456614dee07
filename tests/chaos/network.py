"""A network of one connection at a time: a TCP proxy that can be cut, or fall silent and deliver late."""

from __future__ import annotations

import asyncio
import contextlib

CHUNK_BYTES = 65536


class Proxy:
    """Stands between one worker and the server."""

    def __init__(self) -> None:
        self.target_port = 0
        self.port = 0
        self._is_cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._accepted: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends every connection, and takes no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._accepted, return_exceptions=True)

    def cut(self) -> None:
        """Breaks every connection and refuses new ones."""
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def silence(self) -> None:
        """Connections stay, and nothing gets through until `heal`; then it comes, late."""
        self._flowing.clear()

    def heal(self) -> None:
        self._is_cut = False
        self._flowing.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        pumps = {
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        }
        self._pumps |= pumps
        # Either end's farewell ends both directions, as the death of a process does.
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, far_writer):
            end.close()
            self._writers.discard(end)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps -= pumps

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
