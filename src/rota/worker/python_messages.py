"""What the worker and a warm Python child say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

# The child's descriptors.
QUEUE_DESCRIPTOR = 3
REPLY_DESCRIPTOR = 4
MAX_PACKET_BYTES = 100_000


class Call(msgspec.Struct, array_like=True, frozen=True):
    """One task: a packet of its own, so that a call not yet begun can be taken back out of the socket."""

    number: int
    reference: str
    arguments: dict[str, Any] | list[Any]
    environment: dict[str, str]
    own_environment: dict[str, str] = {}
    working_directory: str = ""
    # The call is too long for a packet: it is in the memory file that came along, this many bytes.
    spooled_bytes: int = 0


class Settings(msgspec.Struct, frozen=True):
    """What a child is started with."""

    python_path: list[str]
    max_memory_bytes: int
    max_output_bytes: int
    separator: str


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """What came of a call; number 0 is the greeting of a child that is ready."""

    number: int
    output: Any = None
    error_type: str | None = None
    error: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    # The child has grown too large, or its code has changed: it ends, and wants no more calls.
    is_last: bool = False
    # The call was not begun, because its code had changed: it is to be given to a new child.
    is_refused: bool = False


def describe_arguments(arguments: object) -> dict[str, Any] | list[Any]:
    """The arguments of a task: by name, or by position."""
    if arguments is None:
        return {}
    if isinstance(arguments, Mapping):
        return {str(name): value for name, value in arguments.items()}
    if isinstance(arguments, list | tuple):
        return list(arguments)
    raise ValueError("args: expected an object of named arguments or a list")
