"""Reading a child's pipe or socket on the event loop: always drained, so the child is never held up."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable

READ_BYTES = 1024 * 1024
DEFAULT_PIPE_BYTES = 64 * 1024


class PipeReader:
    """Reads until the end of the file, or until `finish` is called, whichever is first."""

    __slots__ = ("_descriptor", "_is_enlarged", "_loop", "_on_data")

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._on_data = on_data
        self._is_enlarged = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if len(data) >= DEFAULT_PIPE_BYTES and not self._is_enlarged:
            self._enlarge()
        self._on_data(data)

    def _enlarge(self) -> None:
        """A child that fills its pipe gets a larger one: fewer switches between it and us."""
        self._is_enlarged = True
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, READ_BYTES)
        except OSError:
            # Not permitted beyond the user's share of pipe memory: it works as before, only slower.
            return

    def drain(self) -> None:
        """Reads what is there now."""
        for _ in range(1 + READ_BYTES // DEFAULT_PIPE_BYTES):
            if self._descriptor < 0:
                return
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except OSError:
                return
            if not data:
                self.close()
                return
            self._on_data(data)

    def finish(self) -> None:
        """Reads what is there now, and closes: the writer has ended."""
        self.drain()
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def open_pipe() -> tuple[int, int]:
    """A pipe whose reading end does not block; the writing end blocks, as programs expect."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    return reading, writing
