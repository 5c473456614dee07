"""What the measured Python tasks call."""

from __future__ import annotations


def do_nothing() -> None:
    """A task without any work."""


async def do_nothing_inline() -> None:
    """The same on the worker's own loop."""
