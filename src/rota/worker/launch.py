"""What the worker and its launcher process say to each other, one message per packet of a Unix socket."""

from __future__ import annotations

import msgspec

# Every process of an attempt carries this variable; its value names the launcher and the spawn.
MARKER = "ROTA_PROCESS"


class Spawn(msgspec.Struct, tag="spawn", array_like=True, frozen=True):
    """Start a program. The file descriptors that travel with the packet become `descriptors` in the child.

    A child descriptor may be named twice over by pairs: `(child descriptor, index of the passed one)`.
    """

    number: int
    argv: list[str]
    environment: dict[str, str]
    working_directory: str = ""
    descriptors: list[tuple[int, int]] = []
    memory_bytes: int = 0


class Oversize(msgspec.Struct, tag="oversize", array_like=True, frozen=True):
    """The real message is too long for a packet: it is in the memory file passed last."""

    size: int


class Stop(msgspec.Struct, tag="stop", array_like=True, frozen=True):
    """TERM to the whole tree, KILL after the grace, then verify."""

    number: int
    grace_seconds: float


class Ended(msgspec.Struct, tag="ended", array_like=True, frozen=True):
    """The program and everything it had started is gone, or (`is_verified` false) could not be made to go."""

    number: int
    # Exit code, or the negative number of the signal; None if it was never started.
    exit_code: int | None = None
    start_error: str = ""
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    is_out_of_memory: bool = False
    is_verified: bool = True
    # The launcher itself died; how the program ended is not known.
    is_lost: bool = False


Request = Spawn | Stop | Oversize

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_event = msgspec.msgpack.Decoder(list[Ended]).decode

# A packet must fit the socket's buffer, which is 200 KB by default.
MAX_PACKET_BYTES = 100_000
MAX_DESCRIPTORS = 8
