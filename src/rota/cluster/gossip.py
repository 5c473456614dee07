"""API nodes by gossip: the living members of a Serf cluster whose tag `role` is the name asked for."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from rota.cluster.discovery import DiscoveryOptions, split_address, write_urls
from rota.domain.errors import Unavailable

RPC_VERSION = 1
USUAL_PORT = 7373
ANSWER_SECONDS = 5.0


class GossipDiscovery:
    """Asks the Serf agent of this machine, or the one that was named. A member's tag `port` tells where its API is."""

    def __init__(self, options: DiscoveryOptions) -> None:
        self._options = options

    async def find(self) -> Sequence[str]:
        host, port = split_address(self._options.address, "127.0.0.1", USUAL_PORT)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    members = await self._ask(_Conversation(reader, writer))
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError, msgpack.UnpackException) as error:
            raise Unavailable(f"the Serf agent at {host}:{port} does not answer: {error}") from error
        places = [(_read_host(member), self._read_port(member)) for member in members]
        return write_urls(places, f"the Serf cluster, asked for members with role={self._options.name},")

    async def _ask(self, conversation: _Conversation) -> list[dict[str, Any]]:
        await conversation.call("handshake", {"Version": RPC_VERSION})
        if self._options.key:
            await conversation.call("auth", {"AuthKey": self._options.key})
        wanted = {"Tags": {"role": self._options.name}, "Status": "alive"}
        answer = await conversation.call("members-filtered", wanted, has_answer=True)
        return list(answer["Members"])

    def _read_port(self, member: Mapping[str, Any]) -> int:
        given = str((member.get("Tags") or {}).get("port", ""))
        return int(given) if given.isdigit() else self._options.port


class _Conversation:
    """Commands and answers in turn, each a header and perhaps a body."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unpacker = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape")
        self._number = 0

    async def call(self, command: str, body: Mapping[str, Any], *, has_answer: bool = False) -> Any:
        """The answer's body. Raises Unavailable when the agent refuses."""
        self._number += 1
        self._writer.write(msgpack.packb({"Command": command, "Seq": self._number}) + msgpack.packb(body))
        header = await self._read()
        if header.get("Error"):
            raise Unavailable(f"the Serf agent refuses {command}: {header['Error']}")
        return await self._read() if has_answer else None

    async def _read(self) -> Any:
        while True:
            for document in self._unpacker:
                return document
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionError("it closed the connection")
            self._unpacker.feed(data)


def _read_host(member: Mapping[str, Any]) -> str:
    """The address, which comes as the 4 or 16 bytes of it."""
    given = member["Addr"]
    packed = given.encode("utf-8", "surrogateescape") if isinstance(given, str) else bytes(given)
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
