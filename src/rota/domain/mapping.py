"""What the value of `map_over` means."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rota.domain.spec_read import show


def read_items(value: Any, limit: int) -> list[Any]:
    """The items of a mapped task, at most so many. Raises ValueError."""
    # Some filters of the expressions' language answer with iterators.
    items = list(islice(value, limit + 1)) if isinstance(value, Iterator) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"expected a list, not {show(items)}")
    if len(items) > limit:
        count = f"more than {limit:,}" if isinstance(value, Iterator) else f"{len(items):,}"
        raise ValueError(f"it has {count} items and map_limit is {limit:,}: raise map_limit, or map over less at once")
    return list(items)
